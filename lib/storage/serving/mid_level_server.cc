#include "lib/storage/serving/mid_level_server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/net/clock.h"
#include "lib/storage/serving/deadline.h"
#include "lib/storage/serving/grpc_status.h"
#include "lib/storage/serving/trace_context.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/stripe_name.h"
#include "lib/storage/stripe/stripe_store.h"

namespace sluice {
namespace {

// Limits of the report of gaps, which must be small: the level above does not include it in the expected message size.
constexpr int kMaxGaps = 16;
constexpr size_t kMaxReasonBytes = 300;

// Cuts the text between two characters, since protobuf accepts only UTF-8.
std::string Shortened(const std::string& text) {
  size_t end = std::min(text.size(), kMaxReasonBytes);
  while (end > 0 && end < text.size() && (text[end] & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

// Reports at most kMaxGaps gaps: the last one is extended over all further gaps and the bytes between them.
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

// An SRU is sent in pieces, a manifest in one message.
uint32_t MaxLength(const v1::ReadSruRequest&) {
  return kMaxSruBytes;
}

uint32_t MaxLength(const v1::ReadManifestRequest&) {
  return kMaxReadBytes;
}

}  // namespace

// Returns the part of the cache request that both calls share. It validates the request, and sets the deadline from the
// time left.
template <class RpcRequest>
absl::StatusOr<BlockCache::Request> MidLevelServer::RequestBelow(const grpc::CallbackServerContext& context,
                                                                 const RpcRequest& request) const {
  absl::StatusOr<std::string> file = NameBelow(request);
  if (!file.ok()) return file.status();
  if (request.length() < 1 || request.length() > MaxLength(request)) {
    return absl::InvalidArgumentError(
        absl::StrCat("length is ", request.length(), "; it must be 1 to ", MaxLength(request)));
  }
  const absl::Duration time = TimeForLevelBelow(TimeLeft(context), options_.deadline_reserve);
  if (time <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError(
        absl::StrCat("the deadline leaves less than ", absl::FormatDuration(options_.deadline_reserve)));
  }
  return BlockCache::Request{.file = *std::move(file),
                             .offset = request.offset(),
                             .length = request.length(),
                             .metadata = TraceContext(context),
                             .deadline = DeadlineAfter(time)};
}

// One ReadSru. It requests a piece of the range from the cache when gRPC has taken the previous piece, and sends it
// when its bytes have arrived. Owns itself from construction to OnDone. Its methods run one after the other, on threads
// of gRPC and of the link below, except OnCancel.
class MidLevelServer::SruCall final : public grpc::ServerWriteReactor<v1::ReadSruResponse> {
 public:
  SruCall(MidLevelServer& server, grpc::CallbackServerContext& context, const v1::ReadSruRequest& request)
      : server_(server),
        answer_(server.answers_, ClientName(context), [&context] { context.TryCancel(); }),
        left_(request.length()) {
    if (const auto report = server_.reports_.Take([&context] { return context.peer(); }); report.has_value()) {
      context.AddTrailingMetadata(kTcpReportKey, FormatTcpReport(*report));
    }
    absl::StatusOr<BlockCache::Request> below = server_.RequestBelow(context, request);
    status_ = below.status();
    if (status_.ok()) status_ = answer_.Take(std::min(left_, kSruMessageBytes), Now());
    if (!status_.ok()) {
      Finish(ToGrpc(status_));
      return;
    }
    piece_ = *std::move(below);
    piece_.version = request.manifest_crc32c();
    piece_.allow_partial = request.allow_partial();
    AskForPiece();
  }

  void OnWriteDone(bool ok) override {
    answer_.OnTaken();
    if (!ok) return End(absl::CancelledError("the client is gone"));
    sent_bytes_ += response_.data().size();
    AskForPiece();
  }

  void OnCancel() override {
    BlockCache::TicketPtr ticket;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      ticket = ticket_;
    }
    if (ticket) server_.cache_.Cancel(ticket);
  }

  void OnDone() override {
    answer_.OnOver();
    server_.metrics_.CountCall(cancelled_ ? WorkerOutcome::kCancelled : OutcomeOf(status_));
    if (!cancelled_ && status_.ok()) sent_bytes_ += response_.data().size();  // the last piece was sent with the status
    server_.metrics_.AddSentBytes(sent_bytes_);
    delete this;
  }

 private:
  // Do not touch the call once the cache has the ticket: the call may have ended.
  void AskForPiece() {
    piece_.length = std::min(left_, kSruMessageBytes);
    piece_.more = left_ - piece_.length;
    asked_ = Now();
    BlockCache& cache = server_.cache_;
    const auto ticket =
        BlockCache::Prepare(piece_, [this](absl::StatusOr<BlockCache::Range> range) { OnPiece(std::move(range)); });
    bool cancelled = false;
    {
      const std::lock_guard lock(mutex_);
      ticket_ = ticket;
      cancelled = cancelled_;
    }
    if (cancelled) return End(absl::CancelledError("the client is gone"));
    cache.Read(ticket);
  }

  void OnPiece(absl::StatusOr<BlockCache::Range> range) {
    if (!range.ok()) return End(range.status());
    server_.metrics_.ObserveRead(absl::FromChrono(Now() - asked_));
    response_.Clear();
    TellGaps(range->missing, response_);
    response_.set_data(std::move(range->data));
    piece_.offset += piece_.length;
    left_ -= piece_.length;
    answer_.OnOffered(Now());
    if (left_ == 0) return StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
    StartWrite(&response_);
  }

  void End(absl::Status status) {
    status_ = std::move(status);
    Finish(ToGrpc(status_));
  }

  MidLevelServer& server_;
  AnswerMemory::Share answer_;
  BlockCache::Request piece_;  // the next piece, or the one requested
  uint32_t left_;              // bytes not yet read
  TimePoint asked_;
  v1::ReadSruResponse response_;
  absl::Status status_;
  uint64_t sent_bytes_ = 0;

  std::mutex mutex_;
  bool cancelled_ = false;        // guarded by mutex_ until OnDone
  BlockCache::TicketPtr ticket_;  // guarded by mutex_; of the last requested piece; null if there is none
};

// One ReadManifest. Owns itself from construction to OnDone. The callback of the cache finishes it, on any thread.
class MidLevelServer::ManifestCall final : public grpc::ServerUnaryReactor {
 public:
  ManifestCall(MidLevelServer& server, grpc::CallbackServerContext& context, const v1::ReadManifestRequest& request,
               v1::ReadManifestResponse& response)
      : server_(server),
        answer_(server.answers_, ClientName(context), [&context] { context.TryCancel(); }),
        response_(response) {
    absl::StatusOr<BlockCache::Request> below = server_.RequestBelow(context, request);
    status_ = below.status();
    if (status_.ok()) status_ = answer_.Take(request.length(), Now());
    if (!status_.ok()) {
      Finish(ToGrpc(status_));
      return;
    }
    below->up_to_end = true;
    ticket_ = server_.cache_.Read(*std::move(below), [this](absl::StatusOr<BlockCache::Range> range) {
      status_ = range.status();
      if (range.ok()) {
        response_.set_total_bytes(range->file_bytes);
        response_.set_data(std::move(range->data));
      }
      answer_.OnOffered(Now());
      Finish(ToGrpc(status_));
    });
  }

  void OnCancel() override {
    cancelled_ = true;
    if (ticket_) server_.cache_.Cancel(ticket_);
  }

  void OnDone() override {
    answer_.OnOver();
    server_.metrics_.CountManifestRequest(cancelled_ ? WorkerOutcome::kCancelled : OutcomeOf(status_));
    delete this;
  }

 private:
  MidLevelServer& server_;
  AnswerMemory::Share answer_;
  v1::ReadManifestResponse& response_;
  absl::Status status_;
  std::atomic<bool> cancelled_ = false;
  BlockCache::TicketPtr ticket_;  // null if refused
};

grpc::ServerWriteReactor<v1::ReadSruResponse>* MidLevelServer::ReadSru(grpc::CallbackServerContext* context,
                                                                       const v1::ReadSruRequest* request) {
  if (absl::Status allowed = CheckAccess(options_.access.get(), *context, "SruService/ReadSru", request->file());
      !allowed.ok()) {
    return new RefusedStream<v1::ReadSruResponse>(allowed);
  }
  return new SruCall(*this, *context, *request);
}

grpc::ServerUnaryReactor* MidLevelServer::ReadManifest(grpc::CallbackServerContext* context,
                                                       const v1::ReadManifestRequest* request,
                                                       v1::ReadManifestResponse* response) {
  if (absl::Status allowed = CheckAccess(options_.access.get(), *context, "SruService/ReadManifest", request->file());
      !allowed.ok()) {
    return new RefusedCall(allowed);
  }
  // A reader requests the manifest from its beginning when its own copy has become useless. The copy in this cache is
  // useless too, then.
  if (const auto name = NameBelow(*request); name.ok() && request->offset() == 0) cache_.Forget(*name);
  return new ManifestCall(*this, *context, *request, *response);
}

}  // namespace sluice
