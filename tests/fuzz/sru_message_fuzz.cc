// Passes arbitrary messages of a worker to ParseSruMessage, which reads in place. It must accept every message that the
// generated parser accepts, with the same result. In fields that it skips, it may accept tags with more bytes than
// necessary.
#include <cstdint>
#include <functional>
#include <string>

#include "lib/storage/blocks/sru_message.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const absl::string_view message(reinterpret_cast<const char*>(data), size);
  SruMessage parsed;
  const bool is_message = ParseSruMessage(message, parsed);
  FUZZ_CHECK(parsed.data.empty() || (std::less_equal<>()(message.data(), parsed.data.data()) &&
                                     parsed.data.size() <= size - (parsed.data.data() - message.data())));
  v1::ReadSruResponse expected;
  if (!expected.ParseFromArray(data, static_cast<int>(size))) return 0;
  FUZZ_CHECK(is_message && parsed.data == expected.data());
  FUZZ_CHECK(parsed.missing.size() == static_cast<size_t>(expected.missing_size()));
  for (int i = 0; i < expected.missing_size(); ++i) {
    FUZZ_CHECK(parsed.missing[static_cast<size_t>(i)].SerializeAsString() == expected.missing(i).SerializeAsString());
  }
  return 0;
}
