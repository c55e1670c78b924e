#pragma once

#include <optional>
#include <string>

#include <grpcpp/generic/async_generic_service.h>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"

namespace sluice {

// grpc.health.v1.Health of one server, Check and Watch, for the services "", "readiness" and "liveness" (see
// RpcServer). It receives every method that no other service has, and returns UNIMPLEMENTED for methods other than its
// own. Thread-safe. It must outlive the server.
//
// gRPC's own health service never ends a Watch: one watching client would make every drain last for its whole timeout.
// The library has no generated code of health.proto, since an application may link its own. The two messages have one
// field each, so the well-known wrappers used here have the same encoding.
class HealthService final : public grpc::CallbackGenericService {
 public:
  explicit HealthService(bool ready) : ready_(ready) {}

  void SetReady(bool ready);

  // Ends all current and future watches, each after it has sent the last status. A watch beyond the bounds is refused
  // with RESOURCE_EXHAUSTED: rules of access do not protect this service.
  void EndWatches();

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

 private:
  // The values of health.proto.
  enum Status { kServing = 1, kNotServing = 2, kServiceUnknown = 3 };
  class CheckReactor;
  class WatchReactor;

  // A client library watches once for each connection.
  static constexpr int kMaxWatches = 1024;
  static constexpr int kMaxWatchesOfPeer = 16;

  bool TakeWatch(const std::string& peer);
  Status StatusOf(const std::string& service) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status CurrentStatus(const std::string& service) const;
  void Tell(WatchReactor& watch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  bool ready_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_set<WatchReactor*> watches_ ABSL_GUARDED_BY(mutex_);
  // Watches that have begun, also those without a request yet, by the address of the client's end of the connection.
  absl::flat_hash_map<std::string, int> watches_of_ ABSL_GUARDED_BY(mutex_);
  int taken_watches_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
