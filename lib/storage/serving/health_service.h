#pragma once

#include <optional>
#include <string>

#include <grpcpp/generic/async_generic_service.h>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"

namespace sluice {

// grpc.health.v1.Health of one server, Check and Watch, for the services "", "readiness" and "liveness" (see
// RpcServer). It gets every method that no other service has, and returns UNIMPLEMENTED for those that are not its
// own. Thread-safe. It must outlive the server.
//
// gRPC has a health service of its own, but never ends a Watch: one client that watches would make every drain last for
// its whole timeout. The library has no generated code of health.proto, since an application may have its own; the two
// messages have one field each, and so do the well-known wrappers that are used here.
class HealthService final : public grpc::CallbackGenericService {
 public:
  explicit HealthService(bool ready) : ready_(ready) {}

  void SetReady(bool ready);

  // Ends all watches after they have got the last status, and those that begin later.
  void EndWatches();

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

 private:
  // As in health.proto.
  enum Status { kServing = 1, kNotServing = 2, kServiceUnknown = 3 };
  class CheckReactor;
  class WatchReactor;

  Status StatusOf(const std::string& service) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status CurrentStatus(const std::string& service) const;
  void Tell(WatchReactor& watch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  bool ready_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_set<WatchReactor*> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
