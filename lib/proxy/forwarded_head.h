#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/http2/headers.h"

namespace sluice {

// The head of a call that a proxy sends on.
struct ForwardedHead {
  std::string authority;  // of the client
  std::string path;       // "/package.Service/Method"
  absl::Duration timeout = absl::InfiniteDuration();
  std::string worker;  // value of the field that names the worker; empty if there is none
  std::string block;   // kBlockField: calls with the same one belong to one fan-out; empty: the call stands alone
  int64_t calls = 1;   // kWeightField: number of calls of that fan-out
  // kResponseBytesField: expected bytes of the answer.
  std::optional<int64_t> response_bytes;
  std::string via;        // the proxies that it has passed, the last one behind; empty: none
  HeaderList end_to_end;  // the fields that the worker gets as they are
};

// Request metadata of a fan-out's calls. They are for the proxy, and do not reach the worker.
inline constexpr char kBlockField[] = "sluice-block";
inline constexpr char kWeightField[] = "sluice-weight";
inline constexpr int64_t kMaxWeight = 65536;

// Takes a request apart. `worker_field` is the name of the field that names the worker, or empty. Returns the errors of
// ParseProtocolFields if it is no call of gRPC, and InvalidArgument for a kBlockField that is longer than 64 bytes, a
// kWeightField that is not 1 to kMaxWeight, or a kResponseBytesField that is not 0 to kMaxResponseBytes.
absl::StatusOr<ForwardedHead> ParseForwardedHead(HeaderList headers, absl::string_view worker_field);

// Adds a proxy to `via` (RFC 9110, section 7.6.3). Returns FailedPrecondition if it is there: the call goes in a
// circle.
absl::Status AddVia(ForwardedHead& head, const std::string& proxy);

// The head that the worker gets. `timeout` is what the call has left; an infinite one is not sent.
HeaderList ToHeaders(const ForwardedHead& head, const std::string& authority, bool tls, absl::Duration timeout);

}  // namespace sluice
