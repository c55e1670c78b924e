#include "lib/rpc/granted_rpc.h"

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "lib/rpc/response_size_header.h"

namespace sluice {
namespace {

// Two completions: headers, then everything else. One where nothing is held.
class UnaryRpc final : public GrantedRpc, private Completion {
 public:
  UnaryRpc(Events& events, bool held) : GrantedRpc(events, held) {}

  void Prepare(grpc::GenericStub& stub, const std::string& method, const grpc::ByteBuffer& request,
               grpc::CompletionQueue& queue) override {
    rpc_ = stub.PrepareUnaryCall(&context_, method, request, &queue);
  }

  void Start() override {
    rpc_->StartCall();
    if (!held_) return AskForAnswer();
    rpc_->ReadInitialMetadata(tag());
    Advance();
  }

 private:
  // Finish may not be called while ReadInitialMetadata has not returned on the other thread, though its headers are
  // here: gRPC's reader notes only then that they were asked for, takes Finish for a misuse, and aborts the process.
  void Advance() {
    if (steps_.fetch_add(1) == 1) BeReady(headers_ok_);
  }

  void DoAskForAnswer() override { rpc_->Finish(&response_, &status_, tag()); }

  void OnCompletion(bool ok) override {
    if (!asked()) {
      headers_ok_ = ok;
      return Advance();
    }
    if (status_.ok()) events_.OnMessage(response_);
    events_.OnEnd(status_);
  }

  std::unique_ptr<grpc::GenericClientAsyncResponseReader> rpc_;
  grpc::ByteBuffer response_;
  std::atomic<int> steps_ = 0;
  bool headers_ok_ = false;
};

// Never more than one operation under way.
class ServerStreamingRpc final : public GrantedRpc, private Completion {
 public:
  ServerStreamingRpc(Events& events, bool held) : GrantedRpc(events, held) {}

  void Prepare(grpc::GenericStub& stub, const std::string& method, const grpc::ByteBuffer& request,
               grpc::CompletionQueue& queue) override {
    request_ = &request;
    context_.set_initial_metadata_corked(true);  // it leaves with the request, and completes with it
    rpc_ = stub.PrepareCall(&context_, method, &queue);
  }

  void Start() override {
    rpc_->StartCall(nullptr);
    rpc_->WriteLast(*request_, grpc::WriteOptions(), tag());
  }

 private:
  enum class Step { kRequest, kHeaders, kMessage, kEnd };

  void OnCompletion(bool ok) override {
    switch (step_) {
      case Step::kRequest:
        if (!held_ || !ok) return AskForAnswer();
        step_ = Step::kHeaders;
        return rpc_->ReadInitialMetadata(tag());
      case Step::kHeaders:
        return BeReady(ok);
      case Step::kMessage:
        if (!ok) {
          step_ = Step::kEnd;
          return rpc_->Finish(&status_, tag());
        }
        events_.OnMessage(message_);
        message_.Clear();
        return rpc_->Read(&message_, tag());
      case Step::kEnd:
        return events_.OnEnd(status_);
    }
  }

  void DoAskForAnswer() override {
    step_ = Step::kMessage;
    rpc_->Read(&message_, tag());
  }

  const grpc::ByteBuffer* request_ = nullptr;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> rpc_;
  grpc::ByteBuffer message_;
  Step step_ = Step::kRequest;
};

}  // namespace

std::unique_ptr<GrantedRpc> GrantedRpc::Unary(Events& events, bool held) {
  return std::make_unique<UnaryRpc>(events, held);
}

std::unique_ptr<GrantedRpc> GrantedRpc::ServerStreaming(Events& events, bool held) {
  return std::make_unique<ServerStreamingRpc>(events, held);
}

// A call that is ready has nothing under way: nothing would complete, and nobody would hear of its end. Whichever comes
// second, this or BeReady's look at `cancelled_`, asks.
void GrantedRpc::Cancel() {
  cancelled_ = true;
  context_.TryCancel();
  if (ready_) AskForAnswer();
}

void GrantedRpc::BeReady(bool ok) {
  // From here on Cancel may ask, on another thread, and the end come on a third one.
  const std::shared_ptr<void> hold = events_.Hold();
  ready_ = true;
  if (!ok || cancelled_) {
    AskForAnswer();
  } else {
    events_.OnReady();
  }
}

void GrantedRpc::AskForAnswer() {
  if (!asked_.exchange(true)) DoAskForAnswer();
}

std::optional<TcpReport> GrantedRpc::Report() const {
  const auto& trailers = context_.GetServerTrailingMetadata();
  const auto found = trailers.find(kTcpReportKey);
  if (found == trailers.end()) return std::nullopt;
  return ParseTcpReport({found->second.data(), found->second.size()});
}

std::optional<int64_t> GrantedRpc::AnnouncedResponseBytes() const {
  const auto& headers = context_.GetServerInitialMetadata();
  const auto found = headers.find(kResponseSizeHeader);
  int64_t bytes = 0;
  if (found == headers.end() ||
      !absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &bytes) || bytes < 0) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace sluice
