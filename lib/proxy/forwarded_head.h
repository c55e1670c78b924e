#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/http2/headers.h"

namespace sluice {

// The head of a call that a proxy forwards.
struct ForwardedHead {
  std::string authority;  // of the client
  std::string path;       // "/package.Service/Method"
  absl::Duration timeout = absl::InfiniteDuration();
  std::string worker;         // value of the header that names the worker; empty if there is none
  std::string block;          // kBlockField: calls with the same value belong to one fan-out; empty: a single call
  int64_t calls = 1;          // kWeightField: number of calls of that fan-out
  std::string traffic_class;  // kClassField: empty is the first class
  // kResponseBytesField: expected bytes of the response.
  std::optional<int64_t> response_bytes;
  std::optional<size_t> max_attempts;  // kMaxAttemptsField: of the call, with retries
  std::string client;                  // who the client is, for kClientField; empty: the proxy does not know
  std::string via;                     // the proxies that the call has passed, the last one at the end; empty: none
  HeaderList end_to_end;               // headers that the worker receives with the same values
};

// Request metadata of a fan-out's calls. The proxy uses it, and does not forward it to the worker.
inline constexpr char kBlockField[] = "sluice-block";
inline constexpr char kWeightField[] = "sluice-weight";
inline constexpr char kClassField[] = "sluice-class";
inline constexpr char kMaxAttemptsField[] = "sluice-max-attempts";
inline constexpr int64_t kMaxWeight = 65536;
inline constexpr int64_t kMostAttempts = 5;  // as in gRFC A6
// Request metadata that the proxy adds: "uid 1001" of a Unix socket, or a name of the client's certificate.
inline constexpr char kClientField[] = "sluice-client";

// Parses the head of a request. Drops headers by which proxies tell who the client is, such as
// x-forwarded-client-cert: workers may believe them, since they come with the certificate of this proxy, and any client
// can invent them. `worker_header` is the name of the header that names the worker, or empty. Returns the
// errors of ParseProtocolFields if the request is not a gRPC call. Returns InvalidArgument for a kBlockField of more
// than 64 bytes, a kWeightField outside of 1 to kMaxWeight, a kResponseBytesField outside of 0 to kMaxResponseBytes, a
// kMaxAttemptsField outside of 1 to kMostAttempts, or a "-bin" header that is not base64.
absl::StatusOr<ForwardedHead> ParseForwardedHead(HeaderList headers, absl::string_view worker_header);

// Adds a proxy to `via` (RFC 9110, section 7.6.3). Returns FailedPrecondition if `via` already contains it, because the
// call would loop.
absl::Status AddVia(ForwardedHead& head, const std::string& proxy);

// The headers that the worker receives. `timeout` is the time that the call has left; an infinite timeout is not sent.
HeaderList ToHeaders(const ForwardedHead& head, const std::string& authority, bool tls, absl::Duration timeout);

// The value of the first header of this name; empty if there is none.
std::string HeaderValue(absl::string_view name, const HeaderList& headers);

}  // namespace sluice
