// Passes the headers of arbitrary requests to ParseRequestHead. It must refuse a request with an HTTP status. Otherwise
// sending its result again must give the same result. The input is lines, "name=value".
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lib/grpc_wire/request.h"
#include "lib/grpc_wire/request_parser.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice {
namespace {

void CheckRefusal(const absl::Status& status) {
  const HeaderList refusal = ToRefusal(status);
  FUZZ_CHECK(!refusal.empty() && refusal[0].name == ":status" && refusal[0].value[0] == '4');
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  HeaderList headers;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(reinterpret_cast<const char*>(data), size), '\n')) {
    const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(line, absl::MaxSplits('=', 1));
    headers.push_back({std::string(field.first), std::string(field.second)});
  }
  const auto head = ParseRequestHead(headers);
  if (!head.ok()) {
    CheckRefusal(head.status());
    return 0;
  }
  const auto again = ParseRequestHead(ToHeaders({.path = head->path,
                                                 .authority = head->authority,
                                                 .tls = head->tls,
                                                 .timeout = head->timeout,
                                                 .metadata = &head->metadata}));
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again->path == head->path && again->authority == head->authority && again->tls == head->tls);
  // A timeout of 0 is sent as 1 ns, the shortest possible.
  FUZZ_CHECK(again->timeout == std::max(head->timeout, absl::Nanoseconds(1)));
  FUZZ_CHECK(again->metadata == head->metadata);
  return 0;
}
