#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include "sluice/v1/block_service.grpc.pb.h"
#include "sluice/v1/sru_service.grpc.pb.h"

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/eventually.h"

namespace sluice::testing {

// A plain synchronous gRPC server in this process, without Sluice code. It counts the calls that are in its handlers: a
// call counts until its response is made, so never longer than its client waits for it. A handler returns the requested
// number of bytes when the server is open. Thread-safe.
class GatedServer {
 public:
  struct Counts {
    int requests = 0;
    int open = 0;
    int most_open = 0;
  };

  GatedServer() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&srus_);
    builder.RegisterService(&blocks_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~GatedServer() { Stop(); }

  const std::string& address() const { return address_; }
  void Open() { SetOpen(true); }
  void Close() { SetOpen(false); }
  void Stop() { server_->Shutdown(std::chrono::system_clock::now()); }

  Counts counts() const {
    absl::MutexLock lock(&mutex_);
    return counts_;
  }
  // Returns false if the condition did not become true in time.
  bool Await(const std::function<bool(const Counts&)>& condition) const {
    const auto met = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return condition(counts_); };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&met), kPatience);
  }

  std::function<void(const grpc::ServerContext&)> on_request;  // set before the first call

 private:
  class Srus final : public v1::SruService::Service {
   public:
    explicit Srus(GatedServer& server) : server_(server) {}
    grpc::Status ReadManifest(grpc::ServerContext* context, const v1::ReadManifestRequest* request,
                              v1::ReadManifestResponse* response) override {
      response->set_data(std::string(request->length(), 'x'));
      return server_.Handle(*context);
    }

   private:
    GatedServer& server_;
  };

  // Streams ten chunks of 100 bytes.
  class Blocks final : public v1::BlockService::Service {
   public:
    explicit Blocks(GatedServer& server) : server_(server) {}
    grpc::Status Read(grpc::ServerContext* context, const v1::ReadRequest*,
                      grpc::ServerWriter<v1::ReadResponse>* writer) override {
      v1::ReadResponse part;
      part.mutable_chunk()->set_data(std::string(100, 'x'));
      writer->Write(part);
      const grpc::Status status = server_.Handle(*context);
      for (int i = 1; status.ok() && i < 10; ++i) writer->Write(part);
      return status;
    }

   private:
    GatedServer& server_;
  };

  void SetOpen(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
  }

  grpc::Status Handle(const grpc::ServerContext& context) {
    if (on_request) on_request(context);
    absl::MutexLock lock(&mutex_);
    ++counts_.requests;
    counts_.most_open = std::max(counts_.most_open, ++counts_.open);
    while (!mutex_.AwaitWithTimeout(absl::Condition(&open_), absl::Milliseconds(1))) {
      if (context.IsCancelled()) break;
    }
    --counts_.open;
    return context.IsCancelled() ? grpc::Status::CANCELLED : grpc::Status::OK;
  }

  mutable absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  Srus srus_{*this};
  Blocks blocks_{*this};
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace sluice::testing
