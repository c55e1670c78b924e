#include "lib/storage/serving/sru_server.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/status/status.h"
#include "lib/net/clock.h"
#include "lib/storage/serving/grpc_status.h"

namespace sluice {
namespace {

DiskPool::Options Observed(DiskPool::Options options, WorkerMetrics& metrics) {
  options.on_state = [&metrics, on_state = std::move(options.on_state)](const std::string& folder,
                                                                        const absl::Status& state) {
    metrics.OnDisk(/*silent=*/!state.ok());
    if (on_state != nullptr) on_state(folder, state);
  };
  return options;
}

}  // namespace

// One ReadSru. It reads a piece of the range when gRPC has taken the previous piece. Owns itself from construction to
// OnDone. gRPC runs its methods one after the other, except OnCancel.
class SruServer::SruCall final : public grpc::ServerWriteReactor<v1::ReadSruResponse> {
 public:
  SruCall(SruServer& server, grpc::CallbackServerContext& context, const v1::ReadSruRequest& request)
      : server_(server),
        request_(request),
        answer_(server.answers_, ClientName(context), [&context] { context.TryCancel(); }),
        next_(request.offset()),
        left_(request.length()) {
    if (const auto report = server.reports_.Take([&context] { return context.peer(); }); report.has_value()) {
      context.AddTrailingMetadata(kTcpReportKey, FormatTcpReport(*report));
    }
    const ThinkTime::Options& think = server.options_.think_time;
    if (think.usual > absl::ZeroDuration() || think.tail_share > 0) {
      timer_ = std::make_shared<boost::asio::steady_timer>(server.context_);
    }
    status_ = answer_.Take(std::min(left_, kSruMessageBytes), Now());
    if (!status_.ok()) {
      Send();
      return;
    }
    // Check the whole range before sending the first of several pieces, since the last may not exist.
    Read(left_ > kSruMessageBytes ? left_ : 0, [this](absl::StatusOr<DiskBytes> bytes) { OnFirst(std::move(bytes)); });
  }

  void OnWriteDone(bool ok) override {
    answer_.OnTaken();
    if (ok) {
      sent_bytes_ += response_.data().size();
      return Read(0, [this](absl::StatusOr<DiskBytes> bytes) {
        OnPiece(std::move(bytes));
        Send();
      });
    }
    status_ = absl::CancelledError("the client is gone");
    Send();
  }

  // The timer belongs to the thread of the context. It outlives this call, which may end before the cancel runs there.
  void OnCancel() override {
    cancelled_ = true;
    if (timer_) boost::asio::post(server_.context_, [timer = timer_] { timer->cancel(); });
  }

  void OnDone() override {
    answer_.OnOver();
    server_.metrics_.CountCall(cancelled_ ? WorkerOutcome::kCancelled : OutcomeOf(status_));
    if (!cancelled_ && status_.ok()) sent_bytes_ += response_.data().size();  // the last piece was sent with the status
    server_.metrics_.AddSentBytes(sent_bytes_);
    delete this;
  }

 private:
  // Reads the next piece. `done` may have ended the call when this returns.
  void Read(uint32_t check_length, DiskPool::Done done) {
    // If the file is restriped during the read, the pieces mix both versions; the reader's checksum detects it.
    server_.disk_.ReadRange(
        {.worker = request_.worker(),
         .file = request_.file(),
         .replica = request_.replica(),
         .offset = next_,
         .length = std::min(left_, kSruMessageBytes),
         .check_length = check_length},
        [&metrics = server_.metrics_](std::chrono::nanoseconds elapsed) {
          metrics.ObserveRead(absl::FromChrono(elapsed));
        },
        std::move(done));
  }

  void OnPiece(absl::StatusOr<DiskBytes> bytes) {
    status_ = bytes.status();
    if (!status_.ok()) return;
    const uint32_t length = std::min(left_, kSruMessageBytes);
    next_ += length;
    left_ -= length;
    response_.set_data(std::move(bytes->data));
  }

  void OnFirst(absl::StatusOr<DiskBytes> bytes) {
    OnPiece(std::move(bytes));
    // Draw only for existing data: a number without a worker must not take memory for its draws.
    const absl::Duration think_time = status_.ok() ? server_.think_time_.Next(request_.worker()) : absl::ZeroDuration();
    if (think_time <= absl::ZeroDuration()) return Send();
    boost::asio::post(server_.context_, [this, think_time] { Think(think_time); });
  }

  // Sends the piece that was read. After it, only gRPC may touch the call.
  void Send() {
    answer_.OnOffered(Now());
    if (!status_.ok()) return Finish(ToGrpc(status_));
    if (left_ == 0) return StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
    StartWrite(&response_);
  }

  // On the context's thread, as the cancel.
  void Think(absl::Duration time) {
    timer_->expires_after(cancelled_ ? std::chrono::nanoseconds(0) : absl::ToChronoNanoseconds(time));
    timer_->async_wait([this](const boost::system::error_code& error) {
      if (error || cancelled_) status_ = absl::CancelledError("cancelled");
      Send();
    });
  }

  SruServer& server_;
  const v1::ReadSruRequest request_;
  AnswerMemory::Share answer_;
  uint64_t next_;  // position of the next piece in the stripe
  uint32_t left_;  // bytes not yet read
  v1::ReadSruResponse response_;
  absl::Status status_;
  uint64_t sent_bytes_ = 0;
  std::atomic<bool> cancelled_ = false;
  std::shared_ptr<boost::asio::steady_timer> timer_;  // null: no think time
};

// One ReadManifest. Owns itself from construction to OnDone.
class SruServer::ManifestCall final : public grpc::ServerUnaryReactor {
 public:
  ManifestCall(SruServer& server, grpc::CallbackServerContext& context, const v1::ReadManifestRequest& request,
               v1::ReadManifestResponse& response)
      : server_(server), answer_(server.answers_, ClientName(context), [&context] { context.TryCancel(); }) {
    // Take no memory for a request that is too long: the store refuses it.
    if (request.length() <= kMaxReadBytes) status_ = answer_.Take(request.length(), Now());
    if (!status_.ok()) {
      End();
      return;
    }
    server_.disk_.ReadManifest(request.worker(), request.file(), request.offset(), request.length(),
                               [this, &response](absl::StatusOr<DiskBytes> bytes) {
                                 status_ = bytes.status();
                                 if (bytes.ok()) {
                                   response.set_data(std::move(bytes->data));
                                   response.set_total_bytes(bytes->total_bytes);
                                 }
                                 End();
                               });
  }

  void OnCancel() override { cancelled_ = true; }

  void OnDone() override {
    answer_.OnOver();
    server_.metrics_.CountManifestRequest(cancelled_ ? WorkerOutcome::kCancelled : OutcomeOf(status_));
    delete this;
  }

 private:
  // After it, only gRPC may touch the call.
  void End() {
    answer_.OnOffered(Now());
    Finish(ToGrpc(status_));
  }

  SruServer& server_;
  AnswerMemory::Share answer_;
  absl::Status status_;
  std::atomic<bool> cancelled_ = false;
};

SruServer::SruServer(const StripeStore& store, WorkerMetrics& metrics, TcpReports& reports,
                     boost::asio::io_context& context, const Options& options)
    : metrics_(metrics),
      reports_(reports),
      context_(context),
      options_(options),
      think_time_(options.think_time),
      answers_(std::make_shared<AnswerMemory>(options.max_answer_bytes, options.stall_timeout)),
      disk_(store, Observed(options.disk, metrics)) {}

grpc::ServerWriteReactor<v1::ReadSruResponse>* SruServer::ReadSru(grpc::CallbackServerContext* context,
                                                                  const v1::ReadSruRequest* request) {
  if (absl::Status allowed = CheckAccess(options_.access.get(), *context, "SruService/ReadSru", request->file());
      !allowed.ok()) {
    return new RefusedStream<v1::ReadSruResponse>(allowed);
  }
  return new SruCall(*this, *context, *request);
}

grpc::ServerUnaryReactor* SruServer::ReadManifest(grpc::CallbackServerContext* context,
                                                  const v1::ReadManifestRequest* request,
                                                  v1::ReadManifestResponse* response) {
  if (absl::Status allowed = CheckAccess(options_.access.get(), *context, "SruService/ReadManifest", request->file());
      !allowed.ok()) {
    return new RefusedCall(allowed);
  }
  return new ManifestCall(*this, *context, *request, *response);
}

}  // namespace sluice
