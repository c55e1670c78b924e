#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

namespace sluice::testing {

// A client of grpc.health.v1.Health/Watch for the server as a whole. By hand, since Debian ships no health.proto: the
// request is empty, the answer has one enum. Not thread-safe.
class HealthWatch {
 public:
  // host:port, or unix:PATH.
  explicit HealthWatch(const std::string& address);
  ~HealthWatch();

  // The next status that the server tells: "SERVING", "NOT_SERVING", "UNKNOWN"; "" when the stream has ended, or after
  // the timeout of the whole watch.
  std::string Next();

 private:
  bool Step();  // of the one operation that has been started

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericStub> stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

}  // namespace sluice::testing
