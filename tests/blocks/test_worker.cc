#include "tests/blocks/test_worker.h"

#include <algorithm>
#include <chrono>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/steady_timer.hpp>
#include <google/protobuf/message_lite.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace sluice::testing {
namespace {

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

bool Parse(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite& message) {
  grpc::Slice bytes;
  return buffer.DumpToSingleSlice(&bytes).ok() && message.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size()));
}

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message) {
  const grpc::Slice bytes(message.SerializeAsString());
  return grpc::ByteBuffer(&bytes, 1);
}

using RawMethods = v1::SruService::WithRawCallbackMethod_ReadSru<
    v1::SruService::WithRawCallbackMethod_ReadManifest<v1::SruService::Service>>;

}  // namespace

// Raw bytes out, so that an answer can be no message at all.
class TestWorker::Service final : public RawMethods {
 public:
  explicit Service(const std::string& root) : store_(*StripeStore::Open(root)) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* ReadSru(grpc::CallbackServerContext*,
                                                      const grpc::ByteBuffer* request) override {
    v1::ReadSruRequest asked;
    // A call that is cancelled at once may come without its request.
    if (!Parse(*request, asked)) return new SruCall(*this, Error(grpc::StatusCode::CANCELLED), grpc::Status::OK, {});
    const Fault fault = Decide(sru_fault_, asked);
    v1::ReadSruResponse answer;
    const absl::Status read = store_.Read(asked.worker(), asked.file(), asked.replica(), asked.offset(), asked.length(),
                                          answer.mutable_data());
    if (read.ok() && fault.edit) fault.edit(*answer.mutable_data());
    for (const v1::MissingSruRange& missing : fault.missing) *answer.add_missing() = missing;
    if (fault.kind == Fault::Kind::kGarbage) return new SruCall(*this, fault, grpc::Status::OK, {GarbageBytes()});
    return new SruCall(*this, fault, ToGrpc(read), InMessages(answer, asked));
  }

  grpc::ServerUnaryReactor* ReadManifest(grpc::CallbackServerContext*, const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override {
    v1::ReadManifestRequest asked;
    // A call that is cancelled at once may come without its request.
    if (!Parse(*request, asked)) return new ManifestCall(*this, Error(grpc::StatusCode::CANCELLED), grpc::Status::OK);
    const Fault fault = Decide(manifest_fault_, asked);
    v1::ReadManifestResponse answer;
    const auto total =
        store_.ReadManifest(asked.worker(), asked.file(), asked.offset(), asked.length(), answer.mutable_data());
    if (total.ok() && fault.edit) fault.edit(*answer.mutable_data());
    if (total.ok()) answer.set_total_bytes(fault.manifest_bytes.value_or(*total));
    *response = fault.kind == Fault::Kind::kGarbage ? GarbageBytes() : Serialize(answer);
    return new ManifestCall(*this, fault,
                            fault.kind == Fault::Kind::kGarbage ? grpc::Status::OK : ToGrpc(total.status()));
  }

  void SpoilSrus(SruFault fault) {
    absl::MutexLock lock(&mutex_);
    sru_fault_ = std::move(fault);
  }

  void SpoilManifests(ManifestFault fault) {
    absl::MutexLock lock(&mutex_);
    manifest_fault_ = std::move(fault);
  }

  Counts counts() const {
    absl::MutexLock lock(&mutex_);
    return counts_;
  }

  bool Await(const std::function<bool(const Counts&)>& condition) const {
    const auto met = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return condition(counts_); };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&met), kPatience);
  }

 private:
  // Owns itself from construction to OnDone.
  template <class Reactor>
  class Call : public Reactor {
   public:
    void OnCancel() override {
      service_.CountCancel();
      if (hangs_) this->Finish(grpc::Status::CANCELLED);
    }

    void OnDone() override {
      service_.CountEnd();
      delete this;
    }

   protected:
    Call(Service& service, const Fault& fault, grpc::Status status)
        : service_(service), hangs_(fault.kind == Fault::Kind::kHang), status_(std::move(status)) {
      if (fault.kind == Fault::Kind::kError) status_ = grpc::Status(fault.code, "spoilt by the test");
      service_.CountBegin();
    }

    // Answers now, later or never.
    void Begin(absl::Duration delay) {
      if (hangs_) return;
      if (delay <= absl::ZeroDuration()) return Answer();
      timer_.emplace(service_.io_thread_.context());
      timer_->expires_after(absl::ToChronoNanoseconds(delay));
      timer_->async_wait([this](const boost::system::error_code&) { Answer(); });
    }

    const grpc::Status& status() const { return status_; }

   private:
    virtual void Answer() = 0;

    Service& service_;
    const bool hangs_;
    grpc::Status status_;
    std::optional<boost::asio::steady_timer> timer_;
  };

  class ManifestCall final : public Call<grpc::ServerUnaryReactor> {
   public:
    ManifestCall(Service& service, const Fault& fault, grpc::Status status) : Call(service, fault, std::move(status)) {
      Begin(fault.delay);
    }

   private:
    void Answer() override { Finish(status()); }
  };

  class SruCall final : public Call<grpc::ServerWriteReactor<grpc::ByteBuffer>> {
   public:
    SruCall(Service& service, const Fault& fault, grpc::Status status, std::vector<grpc::ByteBuffer> messages)
        : Call(service, fault, std::move(status)), messages_(std::move(messages)) {
      Begin(fault.delay);
    }

    void OnWriteDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      ++written_;
      Answer();
    }

   private:
    void Answer() override {
      if (!status().ok()) return Finish(status());
      if (written_ + 1 < messages_.size()) return StartWrite(&messages_[written_]);
      StartWriteAndFinish(&messages_[written_], grpc::WriteOptions(), grpc::Status::OK);
    }

    std::vector<grpc::ByteBuffer> messages_;  // one or more, where the status is OK
    size_t written_ = 0;
  };

  // As a worker cuts it; what is missing is said with the piece that it begins in. What is asked for in one message
  // comes in one, also where the test has made it larger.
  static std::vector<grpc::ByteBuffer> InMessages(const v1::ReadSruResponse& answer, const v1::ReadSruRequest& asked) {
    if (asked.length() <= kSruMessageBytes) return {Serialize(answer)};
    const uint64_t offset = asked.offset();
    std::vector<grpc::ByteBuffer> messages;
    for (size_t begin = 0; begin < std::max<size_t>(answer.data().size(), 1); begin += kSruMessageBytes) {
      v1::ReadSruResponse piece;
      piece.set_data(answer.data().substr(begin, kSruMessageBytes));
      for (const v1::MissingSruRange& missing : answer.missing()) {
        if ((missing.offset() - offset) / kSruMessageBytes == begin / kSruMessageBytes) *piece.add_missing() = missing;
      }
      messages.push_back(Serialize(piece));
    }
    return messages;
  }

  // A field of length 100 in a message of three bytes.
  static grpc::ByteBuffer GarbageBytes() {
    grpc::Slice slice("\x0a\x64!");
    return grpc::ByteBuffer(&slice, 1);
  }

  template <class Decision, class Request>
  Fault Decide(const Decision& decision, const Request& request) {
    Decision decide;
    {
      absl::MutexLock lock(&mutex_);
      decide = decision;
    }
    return decide ? decide(request) : Healthy();
  }

  void CountBegin() {
    absl::MutexLock lock(&mutex_);
    ++counts_.requests;
    counts_.most_open = std::max(counts_.most_open, ++counts_.open);
  }

  void CountCancel() {
    absl::MutexLock lock(&mutex_);
    ++counts_.cancelled;
  }

  void CountEnd() {
    absl::MutexLock lock(&mutex_);
    --counts_.open;
  }

  const StripeStore store_;
  IoThread io_thread_;
  mutable absl::Mutex mutex_;
  SruFault sru_fault_;
  ManifestFault manifest_fault_;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

TestWorker::TestWorker(const std::string& root) : service_(std::make_unique<Service>(root)) {
  Start();
}
TestWorker::~TestWorker() {
  Stop();
}

void TestWorker::SpoilSrus(SruFault fault) {
  service_->SpoilSrus(std::move(fault));
}
void TestWorker::SpoilManifests(ManifestFault fault) {
  service_->SpoilManifests(std::move(fault));
}
TestWorker::Counts TestWorker::counts() const {
  return service_->counts();
}
bool TestWorker::Await(const std::function<bool(const Counts&)>& condition) const {
  return service_->Await(condition);
}

void TestWorker::Stop() {
  if (!server_) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

void TestWorker::Start() {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.RegisterService(service_.get());
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(address_, grpc::InsecureServerCredentials(), &port);
  server_ = builder.BuildAndStart();
  ASSERT_NE(port, 0) << "cannot listen on " << address_;
  address_ = absl::StrCat("127.0.0.1:", port);
}

}  // namespace sluice::testing
