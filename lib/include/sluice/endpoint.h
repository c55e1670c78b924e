#pragma once

#include <memory>
#include <optional>
#include <string>

#include "sluice/link.h"
#include "sluice/tls_options.h"

#include "absl/status/statusor.h"

namespace sluice {

class ProxyServer;

// Request metadata of a call through an Endpoint or sluice-proxy that says, in decimal, how many bytes the response
// will have, or all messages of a stream: 0 to kMaxResponseBytes (of sluice/plan.h). Without it the size is learnt from
// earlier responses of the method. It does not reach the worker.
inline constexpr char kResponseBytesField[] = "sluice-response-bytes";

// A socket in this process that generated stubs of gRPC connect to in place of the workers, for client code that stays
// as it is. Their calls go to the workers by the schedule of the link, as those of a FanOut do. Calls of every kind and
// with any metadata pass; their responses come message by message as they fit the link.
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
    // "unix:PATH" or "unix-abstract:NAME" to listen on. Default: an abstract name that nobody else has. Only processes
    // of the same user may connect.
    std::string listen;
    // TLS to the workers, under which the stubs speak plaintext to the endpoint. Absent: plaintext to them as well.
    std::optional<TlsOptions> tls;
  };

  // Returns InvalidArgument if there is no link, its policy is `batches`, or `listen` is no Unix socket;
  // Unavailable if the socket is in use; for `tls`, what ValidateTls returns.
  static absl::StatusOr<std::unique_ptr<Endpoint>> Create(std::shared_ptr<Link> link, Options options);
  static absl::StatusOr<std::unique_ptr<Endpoint>> Create(std::shared_ptr<Link> link);
  ~Endpoint();  // calls under way end with Unavailable; not in a callback of the link
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // For grpc::CreateCustomChannel.
  const std::string& target() const;

 private:
  explicit Endpoint(std::unique_ptr<ProxyServer> server);
  const std::unique_ptr<ProxyServer> server_;
};

}  // namespace sluice
