#pragma once

#include <memory>
#include <utility>

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace sluice {

// A channel to a worker that another one may take the place of. Shared by all that use it; thread-safe.
class WorkerConnection {
 public:
  explicit WorkerConnection(std::shared_ptr<grpc::Channel> channel) { Replace(std::move(channel)); }

  std::shared_ptr<grpc::Channel> channel() const {
    absl::MutexLock lock(&mutex_);
    return channel_;
  }
  // For one call; the call holds its channel.
  std::shared_ptr<grpc::GenericStub> stub() const {
    absl::MutexLock lock(&mutex_);
    return stub_;
  }

  // Calls under way end on the one before.
  void Replace(std::shared_ptr<grpc::Channel> channel) {
    auto stub = std::make_shared<grpc::GenericStub>(channel);
    absl::MutexLock lock(&mutex_);
    channel_ = std::move(channel);
    stub_ = std::move(stub);
  }

 private:
  mutable absl::Mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<grpc::GenericStub> stub_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
