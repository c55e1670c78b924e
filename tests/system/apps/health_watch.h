#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

namespace sluice::testing {

// A client of grpc.health.v1.Health/Watch for the server as a whole. Written by hand because Debian ships no
// health.proto: the request is empty, and the response has one enum. Not thread-safe.
class HealthWatch {
 public:
  // The address is host:port or unix:PATH.
  explicit HealthWatch(const std::string& address);
  ~HealthWatch();

  // Returns the next status from the server: "SERVING", "NOT_SERVING" or "UNKNOWN". Returns "" when the stream has
  // ended, or after the timeout of the whole watch.
  std::string Next();

 private:
  bool Step();  // completes the one operation that has been started

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericStub> stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

}  // namespace sluice::testing
