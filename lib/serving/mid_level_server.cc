#include "lib/serving/mid_level_server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/link/clock.h"
#include "lib/serving/deadline.h"
#include "lib/serving/grpc_status.h"
#include "lib/stripe/stripe_name.h"
#include "lib/stripe/stripe_store.h"

namespace sluice {
namespace {

// What an answer says of its gaps is not in the size that the level above expects of it, so it is little.
constexpr int kMaxGaps = 16;
constexpr size_t kMaxReasonBytes = 300;

// Not cut within a character: protobuf takes nothing but UTF-8.
std::string Shortened(const std::string& text) {
  size_t end = std::min(text.size(), kMaxReasonBytes);
  while (end > 0 && end < text.size() && (text[end] & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

// More gaps than can be told are told as one, which takes in what has come between them.
void TellGaps(const std::vector<MissingBytes>& gaps, v1::ReadSruResponse& response) {
  for (const MissingBytes& gap : gaps) {
    const bool lost = gap.code == absl::StatusCode::kDataLoss;
    const int told = response.missing_size();
    auto* const last = told == 0 ? nullptr : response.mutable_missing(told - 1);
    if (last != nullptr && (told == kMaxGaps || last->offset() + last->length() == gap.offset)) {
      last->set_length(gap.offset + gap.length - last->offset());
      last->set_data_loss(last->data_loss() || lost);
      continue;
    }
    v1::MissingSruRange& missing = *response.add_missing();
    missing.set_offset(gap.offset);
    missing.set_length(gap.length);
    missing.set_reason(Shortened(gap.reason));
    missing.set_data_loss(lost);
  }
}

absl::StatusOr<std::string> NameBelow(const v1::ReadSruRequest& request) {
  if (absl::Status valid = ValidateFileName(request.file()); !valid.ok()) return valid;
  return LowerStripeName(request.file(), request.worker(), request.replica());
}

absl::StatusOr<std::string> NameBelow(const v1::ReadManifestRequest& request) {
  if (absl::Status valid = ValidateFileName(request.file()); !valid.ok()) return valid;
  return LowerManifestName(request.file(), request.worker());
}

}  // namespace

// One call. Owns itself from construction to OnDone. What the cache calls back finishes it, on any thread.
class MidLevelServer::Call : public grpc::ServerUnaryReactor {
 public:
  void OnCancel() override {
    cancelled_ = true;
    if (ticket_) server_.cache_.Cancel(ticket_);
  }

 protected:
  explicit Call(MidLevelServer& server) : server_(server), answer_(server.answers_) {}

  // `request` lacks its file and its deadline.
  template <class RpcRequest>
  void Read(const grpc::CallbackServerContext& context, const RpcRequest& rpc_request, BlockCache::Request request) {
    const absl::Duration time = TimeForLevelBelow(TimeLeft(context), server_.options_.deadline_reserve);
    absl::StatusOr<std::string> file = NameBelow(rpc_request);
    status_ = file.status();
    if (request.length < 1 || request.length > kMaxReadBytes) {
      status_.Update(
          absl::InvalidArgumentError(absl::StrCat("length is ", request.length, "; it must be 1 to ", kMaxReadBytes)));
    }
    if (time <= absl::ZeroDuration()) {
      status_.Update(absl::DeadlineExceededError(
          absl::StrCat("the deadline leaves less than ", absl::FormatDuration(server_.options_.deadline_reserve))));
    }
    if (status_.ok()) status_ = answer_.Take(request.length);
    if (!status_.ok()) return Finish(ToGrpc(status_));
    request.file = *std::move(file);
    request.deadline = DeadlineAfter(time);
    ticket_ = server_.cache_.Read(std::move(request), [this](absl::StatusOr<BlockCache::Range> range) {
      status_ = range.status();
      if (range.ok()) Fill(*std::move(range));
      Finish(ToGrpc(status_));
    });
  }

  virtual void Fill(BlockCache::Range range) = 0;

  WorkerOutcome Outcome() const { return cancelled_ ? WorkerOutcome::kCancelled : OutcomeOf(status_); }

  MidLevelServer& server_;

 private:
  AnswerMemory::Share answer_;
  absl::Status status_;
  std::atomic<bool> cancelled_ = false;
  BlockCache::TicketPtr ticket_;  // null: refused
};

class MidLevelServer::SruCall final : public Call {
 public:
  SruCall(MidLevelServer& server, grpc::CallbackServerContext& context, const v1::ReadSruRequest& request,
          v1::ReadSruResponse& response)
      : Call(server), response_(response), started_(Now()) {
    if (const auto report = server_.reports_.Take([&context] { return context.peer(); }); report.has_value()) {
      context.AddTrailingMetadata(kTcpReportKey, FormatTcpReport(*report));
    }
    Read(context, request,
         {.offset = request.offset(),
          .length = request.length(),
          .version = request.manifest_crc32c(),
          .allow_partial = request.allow_partial()});
  }

  void OnDone() override {
    const WorkerOutcome outcome = Outcome();
    server_.metrics_.CountSruRequest(outcome);
    if (outcome == WorkerOutcome::kOk) server_.metrics_.AddSentBytes(response_.data().size());
    delete this;
  }

 private:
  void Fill(BlockCache::Range range) override {
    server_.metrics_.ObserveRead(absl::FromChrono(Now() - started_));
    TellGaps(range.missing, response_);
    response_.set_data(std::move(range.data));
  }

  v1::ReadSruResponse& response_;
  const TimePoint started_;
};

class MidLevelServer::ManifestCall final : public Call {
 public:
  ManifestCall(MidLevelServer& server, const grpc::CallbackServerContext& context,
               const v1::ReadManifestRequest& request, v1::ReadManifestResponse& response)
      : Call(server), response_(response) {
    Read(context, request, {.offset = request.offset(), .length = request.length(), .up_to_end = true});
  }

  void OnDone() override {
    server_.metrics_.CountManifestRequest(Outcome());
    delete this;
  }

 private:
  void Fill(BlockCache::Range range) override {
    response_.set_total_bytes(range.file_bytes);
    response_.set_data(std::move(range.data));
  }

  v1::ReadManifestResponse& response_;
};

grpc::ServerUnaryReactor* MidLevelServer::ReadSru(grpc::CallbackServerContext* context,
                                                  const v1::ReadSruRequest* request, v1::ReadSruResponse* response) {
  return new SruCall(*this, *context, *request, *response);
}

grpc::ServerUnaryReactor* MidLevelServer::ReadManifest(grpc::CallbackServerContext* context,
                                                       const v1::ReadManifestRequest* request,
                                                       v1::ReadManifestResponse* response) {
  // A reader asks for the beginning when what it knew of the file is of no use to it any more; nor is what is known
  // here.
  if (const auto name = NameBelow(*request); name.ok() && request->offset() == 0) cache_.Forget(*name);
  return new ManifestCall(*this, *context, *request, *response);
}

}  // namespace sluice
