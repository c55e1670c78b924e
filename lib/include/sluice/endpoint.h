#pragma once

#include <memory>
#include <optional>
#include <string>

#include "sluice/access_record.h"
#include "sluice/link.h"
#include "sluice/tls_options.h"

#include "absl/status/statusor.h"

namespace sluice {

class ProxyServer;

// Request metadata of a call through an Endpoint or sluice-proxy: the number of bytes, in decimal, of the response, or
// of all messages of a stream; 0 to kMaxResponseBytes (of sluice/plan.h). Without it, the size follows from earlier
// responses of the method. It does not reach the worker.
inline constexpr char kResponseBytesField[] = "sluice-response-bytes";

// A socket in this process to which generated gRPC stubs connect instead of to the workers, for unchanged client code.
// The schedule of the link applies to their calls as to the calls of a FanOut. Calls of every kind and with any
// metadata pass. Their responses come message by message as they fit the link.
//
// The channel to a worker has the endpoint's target(), and the worker's address as its authority:
//
//   grpc::ChannelArguments arguments;
//   arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "worker-3.workers:7000");
//   grpc::CreateCustomChannel(endpoint->target(), grpc::InsecureChannelCredentials(), arguments);
//
// Bytes of a call cross a Unix socket once each way. sluice-proxy does the same for programs in other languages: see
// docs/guides/proxy.md. There may be several for one link. Thread-safe.
class Endpoint {
 public:
  struct Options {
    // "unix:PATH" or "unix-abstract:NAME" to listen on. Default: a unique abstract name. Only processes of the same
    // user may connect.
    std::string listen;
    // TLS to the workers; absent means plaintext. The stubs always use plaintext to the endpoint.
    std::optional<TlsOptions> tls;
    // Called for each call once it has ended.
    OnAccessRecord on_access = nullptr;
  };

  // Returns InvalidArgument if there is no link, its policy is `batches`, or `listen` is not a Unix
  // socket; Unavailable if the socket is in use; and the errors of ValidateTls for `tls`.
  static absl::StatusOr<std::unique_ptr<Endpoint>> Create(std::shared_ptr<Link> link, Options options);
  static absl::StatusOr<std::unique_ptr<Endpoint>> Create(std::shared_ptr<Link> link);
  ~Endpoint();  // ends calls in progress with Unavailable; do not call it in a callback of the link
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // For grpc::CreateCustomChannel.
  const std::string& target() const;

 private:
  explicit Endpoint(std::unique_ptr<ProxyServer> server);
  const std::unique_ptr<ProxyServer> server_;
};

}  // namespace sluice
