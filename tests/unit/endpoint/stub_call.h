#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/status.h>

#include "sluice/endpoint.h"
#include "sluice/v1/sru_service.grpc.pb.h"

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/eventually.h"

namespace sluice::testing {

inline constexpr int64_t kAnswerBytes = 1400;  // requested by a call; one full packet

inline std::chrono::system_clock::time_point In(absl::Duration time) {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(time);
}

// One call of a generated stub, through one of gRPC's three interfaces.
class Call {
 public:
  virtual ~Call() = default;
  virtual void Start(v1::SruService::Stub& stub) = 0;

  grpc::ClientContext& context() { return *context_; }
  // Waits for the end of the call. Returns false if it has not ended in time; otherwise status() is valid.
  bool Await() { return done_.WaitForNotificationWithTimeout(kPatience); }
  bool ended() const { return done_.HasBeenNotified(); }
  const grpc::Status& status() const { return status_; }
  const v1::ReadManifestResponse& response() const { return response_; }

 protected:
  Call() {
    request_.set_length(kAnswerBytes);
    context_->AddMetadata(kResponseBytesField, std::to_string(kAnswerBytes));
  }

  std::unique_ptr<grpc::ClientContext> context_ = std::make_unique<grpc::ClientContext>();
  v1::ReadManifestRequest request_;
  v1::ReadManifestResponse response_;
  grpc::Status status_;
  absl::Notification done_;
};

class SyncCall final : public Call {
 public:
  ~SyncCall() override {
    if (thread_.joinable()) thread_.join();
  }
  void Start(v1::SruService::Stub& stub) override {
    thread_ = std::thread([this, &stub] {
      status_ = stub.ReadManifest(context_.get(), request_, &response_);
      done_.Notify();
    });
  }

 private:
  std::thread thread_;
};

class QueueCall final : public Call {
 public:
  ~QueueCall() override {
    if (thread_.joinable()) thread_.join();
  }
  void Start(v1::SruService::Stub& stub) override {
    reader_ = stub.AsyncReadManifest(context_.get(), request_, &queue_);
    reader_->Finish(&response_, &status_, this);
    thread_ = std::thread([this] {
      void* tag = nullptr;
      bool ok = false;
      EXPECT_TRUE(queue_.Next(&tag, &ok));
      EXPECT_EQ(tag, this);
      queue_.Shutdown();
      EXPECT_FALSE(queue_.Next(&tag, &ok));
      done_.Notify();
    });
  }

 private:
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ReadManifestResponse>> reader_;
  std::thread thread_;
};

class CallbackCall final : public Call {
 public:
  void Start(v1::SruService::Stub& stub) override {
    stub.async()->ReadManifest(context_.get(), &request_, &response_, [this](grpc::Status status) {
      status_ = std::move(status);
      done_.Notify();
    });
  }
};

}  // namespace sluice::testing
