// Sends arbitrary first bytes of a client's connection to a proxy. The decision must not depend on how the bytes are
// cut, no byte may be lost, and the held bytes must be bounded. The input has one byte for the size of the pieces, then
// the bytes.
#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/proxy/client_opening.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice {
namespace {

using Kind = ClientOpening::Kind;

struct Opened {
  Kind kind = Kind::kUnknown;
  std::string target;
  std::string refusal;
  std::string all;
};

Opened Open(absl::string_view bytes, size_t piece_bytes) {
  ClientOpening opening;
  size_t given = 0;
  while (given < bytes.size() && opening.kind() == Kind::kUnknown) {
    // The kind must be decided before the bytes exceed the maximum size of a head.
    FUZZ_CHECK(given <= ClientOpening::kMaxHeadBytes);
    const absl::string_view piece = bytes.substr(given, piece_bytes);
    given += piece.size();
    FUZZ_CHECK(opening.Read(piece) == opening.kind());
  }
  Opened opened{.kind = opening.kind(), .target = opening.target(), .refusal = opening.refusal()};
  ClientOpening copy = opening;
  const std::string rest = copy.TakeRest();
  opened.all = opening.TakeAll();
  FUZZ_CHECK(opened.all == bytes.substr(0, given));
  FUZZ_CHECK(absl::EndsWith(opened.all, rest));
  if (opened.kind != Kind::kConnect) FUZZ_CHECK(rest == opened.all);
  if (opened.kind == Kind::kConnect) {
    FUZZ_CHECK(!opened.target.empty() && rest.size() < opened.all.size());
    FUZZ_CHECK(opened.target.find_first_of("\r\n ") == std::string::npos);
  }
  FUZZ_CHECK(opened.kind == Kind::kOther || opened.refusal.empty());
  FUZZ_CHECK(opened.refusal.empty() || absl::StartsWith(opened.refusal, "HTTP/1.1 ") ||
             absl::StartsWith(opened.refusal, "\x05"));
  return opened;
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  FuzzInput input(data, size);
  const size_t piece_bytes = 1 + input.Byte();
  const absl::string_view bytes = input.Take(size);
  const Opened whole = Open(bytes, SIZE_MAX);
  const Opened pieces = Open(bytes, piece_bytes);
  // Beast rejects bytes that are not a header earlier if more of them arrive at once. A valid head must be valid in
  // pieces, too.
  if (whole.kind == Kind::kConnect || whole.kind == Kind::kHttp2) {
    FUZZ_CHECK(pieces.kind == whole.kind && pieces.target == whole.target);
  }
  if (pieces.kind == Kind::kConnect || pieces.kind == Kind::kHttp2) FUZZ_CHECK(whole.kind == pieces.kind);
  return 0;
}
