#include "lib/serving/sru_server.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/status/status.h"
#include "lib/serving/grpc_status.h"

namespace sluice {

// One ReadSru. Owns itself from construction to OnDone.
class SruServer::SruCall final : public grpc::ServerUnaryReactor {
 public:
  SruCall(SruServer& server, grpc::CallbackServerContext& context, const v1::ReadSruRequest& request,
          v1::ReadSruResponse& response)
      : server_(server), answer_(server.answers_) {
    if (const auto report = server.reports_.Take([&context] { return context.peer(); }); report.has_value()) {
      context.AddTrailingMetadata(kTcpReportKey, FormatTcpReport(*report));
    }
    status_ = server_.TakeMemory(answer_, request.length());
    if (status_.ok()) status_ = Read(request, response);
    if (status_.ok()) sent_bytes_ = request.length();
    // Only for what is there: a worker that nobody has takes no memory for its draws.
    const absl::Duration think_time = status_.ok() ? server_.think_time_.Next(request.worker()) : absl::ZeroDuration();
    if (think_time > absl::ZeroDuration()) {
      Think(think_time);
    } else {
      Finish(ToGrpc(status_));
    }
  }

  // The timer belongs to the thread of the context. This call may be gone when the cancel runs there; the timer is not.
  void OnCancel() override {
    cancelled_ = true;
    if (timer_) boost::asio::post(server_.context_, [timer = timer_] { timer->cancel(); });
  }

  void OnDone() override {
    server_.metrics_.CountSruRequest(cancelled_ ? WorkerOutcome::kCancelled : OutcomeOf(status_));
    if (!cancelled_) server_.metrics_.AddSentBytes(sent_bytes_);
    delete this;
  }

 private:
  // Blocks this thread of gRPC while the disk reads: stripes are usually in the page cache, and gRPC has more threads.
  absl::Status Read(const v1::ReadSruRequest& request, v1::ReadSruResponse& response) {
    const auto start = std::chrono::steady_clock::now();
    absl::Status status = server_.store_.Read(request.worker(), request.file(), request.replica(), request.offset(),
                                              request.length(), response.mutable_data());
    server_.metrics_.ObserveRead(absl::FromChrono(std::chrono::steady_clock::now() - start));
    return status;
  }

  void Think(absl::Duration time) {
    timer_ = std::make_shared<boost::asio::steady_timer>(server_.context_);
    timer_->expires_after(absl::ToChronoNanoseconds(time));
    timer_->async_wait([this](const boost::system::error_code& error) {
      Finish(error ? grpc::Status(grpc::StatusCode::CANCELLED, "cancelled") : ToGrpc(status_));
    });
  }

  SruServer& server_;
  AnswerMemory::Share answer_;
  absl::Status status_;
  uint64_t sent_bytes_ = 0;
  std::atomic<bool> cancelled_ = false;
  std::shared_ptr<boost::asio::steady_timer> timer_;  // null: no think time
};

// One ReadManifest. Owns itself from construction to OnDone.
class SruServer::ManifestCall final : public grpc::ServerUnaryReactor {
 public:
  ManifestCall(SruServer& server, const v1::ReadManifestRequest& request, v1::ReadManifestResponse& response)
      : server_(server), answer_(server.answers_) {
    status_ = server_.TakeMemory(answer_, request.length());
    if (status_.ok()) status_ = Read(request, response);
    Finish(ToGrpc(status_));
  }

  void OnCancel() override { cancelled_ = true; }

  void OnDone() override {
    server_.metrics_.CountManifestRequest(cancelled_ ? WorkerOutcome::kCancelled : OutcomeOf(status_));
    delete this;
  }

 private:
  absl::Status Read(const v1::ReadManifestRequest& request, v1::ReadManifestResponse& response) {
    const absl::StatusOr<uint64_t> total = server_.store_.ReadManifest(
        request.worker(), request.file(), request.offset(), request.length(), response.mutable_data());
    if (total.ok()) response.set_total_bytes(*total);
    return total.status();
  }

  SruServer& server_;
  AnswerMemory::Share answer_;
  absl::Status status_;
  std::atomic<bool> cancelled_ = false;
};

absl::Status SruServer::TakeMemory(AnswerMemory::Share& answer, uint32_t bytes) {
  if (bytes > kMaxReadBytes) return absl::OkStatus();  // nothing is held for it: the store refuses it
  return answer.Take(bytes);
}

grpc::ServerUnaryReactor* SruServer::ReadSru(grpc::CallbackServerContext* context, const v1::ReadSruRequest* request,
                                             v1::ReadSruResponse* response) {
  return new SruCall(*this, *context, *request, *response);
}

grpc::ServerUnaryReactor* SruServer::ReadManifest(grpc::CallbackServerContext*, const v1::ReadManifestRequest* request,
                                                  v1::ReadManifestResponse* response) {
  return new ManifestCall(*this, *request, *response);
}

}  // namespace sluice
