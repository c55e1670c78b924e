// Parses an arbitrary `workers` of a config, one entry per line. The list must be bounded and keep its order, and its
// expanded entries must parse to themselves.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lib/link/worker_list.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::vector<std::string> entries =
      absl::StrSplit(absl::string_view(reinterpret_cast<const char*>(data), size), '\n');
  const absl::StatusOr<WorkerList> list = ParseWorkerList(entries);
  if (!list.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(list.status()));
    return 0;
  }
  FUZZ_CHECK(list->fixed.size() <= kMaxListedWorkers);
  if (!list->fixed.empty()) {
    const absl::StatusOr<WorkerList> again = ParseWorkerList(list->fixed);
    FUZZ_CHECK(again.ok() && again->fixed == list->fixed && !again->NeedsLookUps());
  }
  if (!list->open.has_value()) return 0;
  FUZZ_CHECK(list->open->first < kMaxListedWorkers);
  const std::vector<std::string> addresses = list->Addresses(2, {});
  FUZZ_CHECK(addresses.size() == std::min(list->fixed.size() + 2, kMaxListedWorkers));
  return 0;
}
