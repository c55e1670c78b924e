#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/storage/serving/grpc_status.h"
#include "lib/tls/access_rules.h"
#include "prometheus/counter.h"
#include "prometheus/registry.h"

namespace sluice {

// Accepts or refuses the calls of a server, by its AccessRules. The services call it before any other work. There is
// one for each process. Thread-safe.
class AccessControl {
 public:
  // `on_refused` is called on threads of gRPC.
  AccessControl(AccessRules rules, prometheus::Registry& registry,
                std::function<void(const AccessRefusal&)> on_refused);

  // The method is "BlockService/Read"; `file` is absent for a method that reads none. Returns the errors of
  // AccessRules::Check.
  absl::Status Check(const grpc::CallbackServerContext& context, absl::string_view method,
                     std::optional<absl::string_view> file);

 private:
  const AccessRules rules_;
  const std::function<void(const AccessRefusal&)> on_refused_;
  const std::array<prometheus::Counter*, 3> refusals_;  // by service
};

// As AccessControl::Check; without an AccessControl, each call is accepted.
absl::Status CheckAccess(AccessControl* access, const grpc::CallbackServerContext& context, absl::string_view method,
                         std::optional<absl::string_view> file);

// Returns the name that all calls of one client have: of its certificate, of its user on a Unix socket that tells users
// apart, otherwise of its host.
std::string ClientName(const grpc::CallbackServerContext& context);

// Tells the services who the clients of one acceptor are: the processes of a user, on Unix sockets. There is one for
// each acceptor. Thread-safe.
class UidProcessor final : public grpc::AuthMetadataProcessor {
 public:
  explicit UidProcessor(uint32_t uid);
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata* consumed,
                       OutputMetadata* response) override;

 private:
  const std::string uid_;
  std::mutex mutex_;  // the context belongs to all calls of a connection
};

// Ends a streaming call at once. Owns itself.
template <class Response>
class RefusedStream final : public grpc::ServerWriteReactor<Response> {
 public:
  explicit RefusedStream(const absl::Status& status) { this->Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

// The same for a unary call.
class RefusedCall final : public grpc::ServerUnaryReactor {
 public:
  explicit RefusedCall(const absl::Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace sluice
