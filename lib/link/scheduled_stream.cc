#include "lib/link/scheduled_stream.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sluice/plan.h"

#include "lib/link/connection.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_metrics.h"
#include "lib/link/worker.h"
#include "lib/tcp/tcp_report.h"

namespace sluice {
namespace {

// How often a call is sent again that its worker never looked at. A server that refuses each time has failed.
constexpr int kMaxUnhandled = 3;

}  // namespace

ScheduledStream::ScheduledStream(LinkLoop& loop, Options options)
    : loop_(loop), options_(std::move(options)), submitted_(loop.now()), window_(options_.many_messages) {}

CallRequest ScheduledStream::Request() {
  return {.response_bytes = std::clamp<int64_t>(options_.response_bytes, 0, kMaxResponseBytes),
          .tag = Scheduled::tag(),
          .may_idle = options_.may_idle,
          .parked = options_.worker->Sendable() == nullptr,
          .worker = options_.worker->schedule_id()};
}

bool ScheduledStream::late() const {
  return loop_.now() >= options_.deadline;
}

void ScheduledStream::Resume() {
  loop_.Unpark(*this);
}

void ScheduledStream::Send(CallId id, int64_t granted_bytes) {
  id_ = id;
  Connection* const connection = options_.worker->Sendable();
  if (connection == nullptr) return loop_.Park(*this);
  if (!MayBegin(granted_bytes)) {
    loop_.Unsend(*this);
    return options_.worker->OnStreamUnused();
  }
  const TimePoint now = loop_.now();
  window_ = StreamWindow(options_.many_messages);
  prefixes_ = MessagePrefixes();
  asked_bytes_ = 0;
  window_.Grant(granted_bytes);
  // The owner first: the stream may end within Open.
  sent_ = now;
  connection_ = connection;
  Opening opening = Begin(now);
  const absl::StatusOr<int32_t> stream = connection->session()->Open(
      opening.head, std::move(opening.data), opening.end_stream, static_cast<uint32_t>(window_.TakeWidening()), *this);
  if (!stream.ok()) {
    connection_ = nullptr;
    if (absl::IsResourceExhausted(stream.status())) return loop_.Park(*this);
    // Its headers are too large for the worker, on every connection.
    End(absl::ResourceExhaustedError(stream.status().message()), CallEnd::kArrived);
    return options_.worker->OnStreamUnused();
  }
  stream_ = *stream;
  connection->FlushLater();
  loop_.metrics().ObserveQueueWait(absl::FromChrono(now - submitted_));
  granted_ = granted_bytes > 0 ? now : TimePoint();
  OnSent();
}

absl::StatusOr<size_t> ScheduledStream::SendData(std::string bytes, bool end_stream) {
  if (!open()) return absl::FailedPreconditionError("the stream is not open");
  const size_t bytes_now = bytes.size();
  absl::StatusOr<size_t> kept = connection_->session()->SendData(stream_, std::move(bytes), end_stream);
  connection_->FlushLater();
  // The window of a worker that does not read may be as wide as it likes; what it lets out would pile up at the socket.
  if (kept.ok() && *kept == 0 && !end_stream && connection_->congested()) {
    if (!DrainHook::is_linked()) connection_->WaitUntilDrained(*this);
    return std::max<size_t>(bytes_now, 1);
  }
  return kept;
}

bool ScheduledStream::request_left() const {
  return open() && connection_->session()->unsent_bytes(stream_) == 0 && !connection_->congested();
}

void ScheduledStream::Grant(int64_t bytes) {
  if (connection_ == nullptr) return;
  window_.Grant(bytes);
  // It only pays for bytes that came in the room for a prefix. Do not open that room again before more of the message
  // is asked for: it would come through it, a few bytes in each round trip.
  if (window_.granted_bytes() == 0) return;
  if (granted_ == TimePoint()) granted_ = loop_.now();
  SetHeld(HeldFor::kNothing);
  WidenWindow();
}

void ScheduledStream::SetHeld(HeldFor held_for) {
  if (std::exchange(held_for_, held_for) != held_for && wanted()) OnHeld(held_for);
}

void ScheduledStream::WidenWindow() {
  const int64_t bytes = window_.TakeWidening();
  if (bytes == 0 || connection_ == nullptr) return;
  connection_->session()->Grant(stream_, static_cast<uint32_t>(bytes));
  connection_->FlushLater();
}

void ScheduledStream::Tell(absl::Status why) {
  if (!std::exchange(told_, true)) OnEnded(std::move(why));
}

// It is destroyed at the end of the turn.
void ScheduledStream::EndUnsent(absl::Status why) {
  ended_ = true;
  const bool waited = WaitHook::is_linked();
  WaitHook::unlink();
  if (!end_status_.ok()) why = end_status_;
  if (absl::IsDeadlineExceeded(why)) loop_.metrics().CountTimeout(TimeoutKind::kQueueDeadline);
  loop_.Forget(*this);
  Tell(std::move(why));
  if (!waited) options_.worker->OnStreamUnused();
}

// The allowance counts what the worker hears of.
bool ScheduledStream::MayReset() {
  return connection_ == nullptr || !connection_->session()->on_wire(stream_) || options_.worker->TakeReset(loop_.now());
}

bool ScheduledStream::Abandon(const absl::Status& why) {
  if (told_) return true;
  CountUnanswered(why);
  if (MayReset()) return false;
  DropUntilReset(why);
  return true;
}

void ScheduledStream::CountUnanswered(const absl::Status& why) {
  if (!absl::IsDeadlineExceeded(why) || ready_ || sent_ == TimePoint() || std::exchange(unanswered_, true)) return;
  loop_.workers().OnUnanswered(options_.worker->row());
}

// The owner need not wait for that. Most servers end the stream before, since they know the deadline. Its response
// comes after all others. Rejected: to grant nothing more to it. Fan-outs that give up more calls than may be reset
// then fill MAX_CONCURRENT_STREAMS of each worker.
void ScheduledStream::DropUntilReset(absl::Status why) {
  options_.worker->WaitForReset(*this);
  loop_.Unwanted(id_);
  Tell(std::move(why));
  AskForMore();  // the owner may have had no room for all of a message
}

void ScheduledStream::ResetNow() {
  ResetStream();
}

// If it is not on the wire, it could not be sent after all, or has ended, before the schedule's word came through.
void ScheduledStream::Abort() {
  if (ended_ || told_) return;
  // Whoever cancels a call has asked for its reset before; see Abandon.
  const bool may_reset = !end_status_.ok() || MayReset();
  if (end_status_.ok()) {
    end_status_ =
        late() ? absl::DeadlineExceededError("the deadline passed") : absl::CancelledError("the call was cancelled");
  }
  CountUnanswered(end_status_);
  if (!may_reset) return DropUntilReset(end_status_);
  if (connection_ != nullptr) return ResetStream();
  WaitHook::unlink();
  End(end_status_, CallEnd::kAborted);
}

void ScheduledStream::ResetStream() {
  reset_ = true;
  WaitHook::unlink();
  Connection* const connection = connection_;
  if (connection == nullptr) return;
  connection->session()->Reset(stream_, reset_error_);
  connection->FlushLater();
}

// It may have been given up within TakeHeaders or TakeData, and its reset is then under way.
void ScheduledStream::RefuseResponse() {
  if (!wanted() || !end_status_.ok()) return;
  if (MayReset()) return ResetStream();
  refused_ = true;
  Conclude({StreamEnd::Kind::kReset, reset_error_, true}, absl::OkStatus());
  DropUntilReset(absl::OkStatus());
}

void ScheduledStream::OnHeaderBytes(size_t wire_bytes) {
  loop_.HeadersCame(id_, wire_bytes);
}

void ScheduledStream::OnHeaders(HeaderList headers, bool end_stream) {
  headers_came_ = true;
  if (end_stream) loop_.workers().OnResponded(options_.worker->row());
  if (wanted() && !TakeHeaders(std::move(headers), end_stream)) RefuseResponse();
}

void ScheduledStream::OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) {
  if (reset_) return;
  const MessagePrefixes::Part part = prefixes_.Read(bytes);
  const auto padding_bytes = static_cast<int64_t>(window_bytes - bytes.size());
  window_.Receive(part.message_bytes, part.prefix_bytes, padding_bytes);
  asked_bytes_ = part.whole_prefix ? 0 : std::max<int64_t>(asked_bytes_ - part.message_bytes, 0);
  if (wanted() && !TakeData(bytes, end_stream)) RefuseResponse();
  if (reset_) return;
  if (!std::exchange(ready_, ready_ || part.whole_prefix) && ready_) {
    ready_after_ = loop_.now() - sent_;
    loop_.metrics().ObserveReady(absl::FromChrono(ready_after_));
    if (!told_) OnReady(ready_after_);
    if (reset_ || connection_ == nullptr) return;
  }
  const int64_t pending_bytes = end_stream ? 0 : prefixes_.pending_message_bytes();
  if (window_.granted_bytes() > 0 || pending_bytes == 0) SetHeld(HeldFor::kNothing);
  if (part.message_bytes > 0) loop_.Received(*this, part.message_bytes);
  if (part.whole_prefix && pending_bytes == 0 && connection_ != nullptr) loop_.Ready(id_, 0, 0);
  if (!end_stream) TellReady(/*prefix_came=*/part.whole_prefix && pending_bytes > 0);
  // Restores the room for a prefix if padding took some of it. If a message did, the next grant restores the room.
  if (pending_bytes > 0 && (padding_bytes > 0 || window_.low())) WidenWindow();
  if (wanted()) HandOut();
  if (pending_bytes > 0 || end_stream || reset_ || connection_ == nullptr) return;
  if (told_ || MayComeNext()) return WidenWindow();
  SetHeld(HeldFor::kRoom);  // the worker may have a message, and is not to blame for it
}

// Half of what is wanted stays on its way, so that the worker need not wait for the next word.
// A call that was given up has no owner to ask, and takes all. The bytes of a response that was refused are no
// messages. The schedule receives a prefix at once, even if the owner has no room: the worker is not slow because the
// application is.
void ScheduledStream::TellReady(bool prefix_came) {
  if (connection_ == nullptr || reset_ || refused_) return;
  const int64_t pending_bytes = prefixes_.pending_message_bytes();
  const int64_t wanted_bytes = told_ ? pending_bytes : std::min(pending_bytes, WantedBytes());
  const bool asks = wanted_bytes > asked_bytes_ && (asked_bytes_ <= wanted_bytes / 2 || wanted_bytes == pending_bytes);
  if (asks) asked_bytes_ = wanted_bytes;
  if (window_.granted_bytes() == 0 && pending_bytes > 0) SetHeld(asked_bytes_ > 0 ? HeldFor::kGrant : HeldFor::kRoom);
  if (!asks && !prefix_came) return;
  if (asks && !told_) OnAsked();
  loop_.Ready(id_, asked_bytes_, pending_bytes - asked_bytes_);
}

void ScheduledStream::LetNextCome() {
  if (prefixes_.pending_message_bytes() > 0) return;
  SetHeld(HeldFor::kNothing);
  WidenWindow();
}

void ScheduledStream::AskForMore() {
  TellReady(/*prefix_came=*/false);
}

void ScheduledStream::OnWritable() {
  if (wanted()) OnRequestWritable();
}

void ScheduledStream::OnClosed(StreamEnd end) {
  connection_ = nullptr;
  WaitHook::unlink();
  DrainHook::unlink();
  if (wanted()) HandOut();
  const bool unhandled = end.kind == StreamEnd::Kind::kUnhandled && !headers_came_;
  if (unhandled && wanted() && MayBeginAgain() && ++unhandled_ <= kMaxUnhandled) return loop_.Park(*this);
  const TimePoint now = loop_.now();
  if (end.reset_here && !reset_) options_.worker->CountReset(now);
  const bool answered = !told_ && Conclude(end, end_status_);
  const absl::Duration transfer = absl::FromChrono(now - std::max(sent_, granted_));
  loop_.metrics().ObserveSruTransfer(transfer);
  if (answered) loop_.workers().OnAnswered(options_.worker->row(), absl::FromChrono(ready_after_), transfer);
  // What came on the stream came before its end. Only if this side did not wait for that may more be on its way.
  const bool all_came = !end.reset_here && end.kind != StreamEnd::Kind::kLost;
  End(absl::OkStatus(), all_came ? CallEnd::kArrived : CallEnd::kAborted);
}

// The owner first: a retry that it adds keeps the block, and so its place in the queue, alive.
void ScheduledStream::End(absl::Status why, CallEnd how) {
  ended_ = true;
  Tell(std::move(why));
  loop_.Finish(*this, how);
}

void ScheduledStream::CountTcpReport(std::string_view text) {
  const std::optional<TcpReport> report = ParseTcpReport(text);
  if (!report.has_value()) return;
  const auto news = loop_.workers().OnReport(options_.worker->row(), report->port, {report->retransmits, report->rtos});
  loop_.metrics().CountWorkerReport(WorkerReport::kRetransmit, news.retransmits);
  loop_.metrics().CountWorkerReport(WorkerReport::kRto, news.rtos);
}

}  // namespace sluice
