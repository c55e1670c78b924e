#include "tests/testbed/block_callers.h"

#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "absl/synchronization/notification.h"

namespace sluice::testbed {
namespace {

// The tags and lengths of an AnswerResponse take at most 6 bytes for `payload` and 2 for `tail`.
constexpr int64_t kMessageOverheadBytes = 8;

// Of gRPC's own client, whose default refuses errors with large details.
constexpr int kMaxHeaderBytes = 64 << 10;

using Clock = BlockRecord::Clock;

class FanOutCaller final : public BlockCaller {
 public:
  FanOutCaller(FanOut& fan_out, const FanOutCallerOptions& options) : fan_out_(fan_out), options_(options) {}

  absl::Status Call(const std::vector<v1::AnswerRequest>& requests, absl::Duration timeout,
                    BlockRecord& record) override {
    const bool stream = requests.front().messages() > 1;
    const Method<v1::AnswerRequest, v1::AnswerResponse> method{
        .path = stream ? "/sluice.testbed.v1.Answers/AnswerStream" : "/sluice.testbed.v1.Answers/Answer",
        .server_streaming = stream};
    FanOutOptions options = options_.call;
    options.timeout = timeout;
    FanOutResult result;
    absl::Notification done;
    const std::shared_ptr<FanOutCall> call = fan_out_.CallAsync(
        method, [&](size_t worker) { return AskOf(worker, requests); },
        [&](size_t worker, const v1::AnswerResponse& response) {
          if (options_.on_message) {
            if (absl::Status accepted = options_.on_message(); !accepted.ok()) return accepted;
          }
          return record.Add(requests[worker], response);
        },
        options,
        [&](FanOutResult ended) {
          result = std::move(ended);
          done.Notify();
        });
    if (options_.cut && !done.WaitForNotificationWithTimeout(absl::FromChrono(*options_.cut - Clock::now()))) {
      call->Cancel();
    }
    done.WaitForNotification();
    record.retries = result.retries;
    record.hedges = result.hedges;
    record.hedges_won = result.hedges_won;
    return result.status;
  }

 private:
  std::optional<Ask<v1::AnswerRequest>> AskOf(size_t worker, const std::vector<v1::AnswerRequest>& requests) const {
    if (worker >= requests.size()) return std::nullopt;
    const v1::AnswerRequest& request = requests[worker];
    std::optional<int64_t> bytes;
    if (options_.sizes_known) bytes = int64_t{request.messages()} * (request.response_bytes() + kMessageOverheadBytes);
    std::vector<size_t> replicas;
    for (size_t i = 1; i <= options_.replicas; ++i) replicas.push_back((worker + i) % fan_out_.workers());
    return Ask<v1::AnswerRequest>(request, bytes, std::move(replicas));
  }

  FanOut& fan_out_;
  const FanOutCallerOptions options_;
};

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

class HandWrittenCaller final : public BlockCaller {
 public:
  HandWrittenCaller(const Stubs& stubs, CallCap& cap, std::optional<Clock::time_point> cut)
      : stubs_(stubs), cap_(cap), cut_(cut) {}

  ~HandWrittenCaller() override { queue_.Shutdown(); }

  absl::Status Call(const std::vector<v1::AnswerRequest>& requests, absl::Duration timeout,
                    BlockRecord& record) override {
    const auto deadline = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout);
    std::deque<OneCall> calls(requests.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      calls[i].request = &requests[i];
      cap_.Start([this, &call = calls[i], i, deadline] {
        call.context.set_deadline(deadline);
        call.reader = stubs_[i]->PrepareAsyncAnswer(&call.context, *call.request, &queue_);
        call.reader->StartCall();
        call.reader->Finish(&call.response, &call.status, &call);
      });
    }
    absl::Status status;
    for (size_t left = requests.size(); left > 0; --left) {
      OneCall& call = *static_cast<OneCall*>(NextEnded(calls));
      cap_.End();
      status.Update(call.status.ok() ? record.Add(*call.request, call.response) : FromGrpc(call.status));
    }
    return status;
  }

 private:
  struct OneCall {
    const v1::AnswerRequest* request = nullptr;
    grpc::ClientContext context;
    v1::AnswerResponse response;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<v1::AnswerResponse>> reader;
  };

  // Returns the tag of a call that has ended. Cancels all calls when the time is up.
  void* NextEnded(std::deque<OneCall>& calls) {
    void* tag = nullptr;
    bool ok = false;
    if (cut_) {
      // gRPC wants the time by the system's clock.
      const auto cut = std::chrono::system_clock::now() +
                       std::chrono::duration_cast<std::chrono::system_clock::duration>(*cut_ - Clock::now());
      if (queue_.AsyncNext(&tag, &ok, cut) != grpc::CompletionQueue::TIMEOUT) return tag;
      for (OneCall& call : calls) call.context.TryCancel();
    }
    queue_.Next(&tag, &ok);
    return tag;
  }

  const Stubs& stubs_;
  CallCap& cap_;
  const std::optional<Clock::time_point> cut_;
  grpc::CompletionQueue queue_;
};

}  // namespace

std::unique_ptr<BlockCaller> MakeFanOutCaller(FanOut& fan_out, const FanOutCallerOptions& options) {
  return std::make_unique<FanOutCaller>(fan_out, options);
}

void CallCap::Start(std::function<void()> start) {
  {
    absl::MutexLock lock(&mutex_);
    if (free_ == 0) {
      waiting_.push_back(std::move(start));
      return;
    }
    --free_;
  }
  start();
}

void CallCap::End() {
  std::function<void()> next;
  {
    absl::MutexLock lock(&mutex_);
    if (waiting_.empty()) {
      ++free_;
      return;
    }
    next = std::move(waiting_.front());
    waiting_.pop_front();
  }
  next();
}

Stubs ConnectByHand(const std::vector<std::string>& workers) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxHeaderBytes);
  Stubs stubs;
  for (const std::string& worker : workers) {
    stubs.push_back(
        v1::Answers::NewStub(grpc::CreateCustomChannel(worker, grpc::InsecureChannelCredentials(), arguments)));
  }
  return stubs;
}

std::unique_ptr<BlockCaller> MakeHandWrittenCaller(const Stubs& stubs, CallCap& cap,
                                                   std::optional<Clock::time_point> cut) {
  return std::make_unique<HandWrittenCaller>(stubs, cap, cut);
}

}  // namespace sluice::testbed
