#include "lib/link/scheduled_stream.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sluice/plan.h"

#include "lib/link/connection.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_metrics.h"
#include "lib/link/worker.h"

namespace sluice {
namespace {

// How often a call is sent again if its worker never processed it. A server that always refuses has failed.
constexpr int kMaxUnhandled = 3;

}  // namespace

ScheduledStream::ScheduledStream(LinkLoop& loop, Options options, std::shared_ptr<StreamUser> user)
    : loop_(loop),
      options_(std::move(options)),
      user_(std::move(user)),
      submitted_(loop.now()),
      flow_(options_.many_messages) {
  QueueHook::request_bytes = options_.request_bytes;
}

CallRequest ScheduledStream::Request() {
  return {.response_bytes = std::clamp<int64_t>(options_.response_bytes, 0, kMaxResponseBytes),
          .tag = Scheduled::tag(),
          .may_idle = options_.may_idle,
          .parked = options_.worker->Sendable(options_.client) == nullptr,
          .worker = options_.worker->schedule_id()};
}

void ScheduledStream::Send(int64_t granted_bytes) {
  Connection* const connection = options_.worker->Sendable(options_.client);
  if (connection == nullptr) return loop_.Park(*this);
  const TimePoint now = loop_.now();
  std::optional<StreamUser::Opening> opening = user_->BeginRequest(now, granted_bytes);
  waits_for_room = !opening.has_value();
  if (waits_for_room) {
    loop_.schedule_run().OnUnsent(id());
    return options_.worker->OnStreamUnused();
  }
  flow_ = ResponseFlow(options_.many_messages, opening->unasked_bytes);
  flow_.Grant(granted_bytes);
  // The stream may close within Open.
  sent_ = now;
  connection_ = connection;
  phase_ = Phase::kOpen;
  connection->OnStreamOpens(options_.client);
  const absl::StatusOr<int32_t> stream = connection->session()->Open(
      opening->head, std::move(opening->data), opening->end_stream, static_cast<uint32_t>(flow_.TakeWidening()), *this);
  if (!stream.ok()) {
    connection->OnStreamClosed(options_.client);
    connection_ = nullptr;
    phase_ = Phase::kWaiting;
    if (absl::IsResourceExhausted(stream.status())) return loop_.Park(*this);
    // Its headers are too large for the worker, on every connection.
    End(absl::ResourceExhaustedError(stream.status().message()), CallEnd::kArrived);
    return options_.worker->OnStreamUnused();
  }
  stream_ = *stream;
  QueueHook::unlink();
  connection->FlushLater();
  loop_.metrics().ObserveQueueWait(absl::FromChrono(now - submitted_));
  granted_ = granted_bytes > 0 ? now : TimePoint();
  user_->OnRequestSent();
}

absl::StatusOr<size_t> ScheduledStream::SendData(std::string bytes, bool end_stream) {
  if (!open()) return absl::FailedPreconditionError("the stream is not open");
  const size_t bytes_now = bytes.size();
  absl::StatusOr<size_t> kept = connection_->session()->SendData(stream_, std::move(bytes), end_stream);
  connection_->FlushLater();
  // A worker that does not read may still open a wide window. The bytes would then pile up at the socket.
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
  flow_.Grant(bytes);
  // This grant only covers bytes that arrived in the room for a prefix. Do not open that room again before more of the
  // message is requested. Otherwise the message would arrive through it, a few bytes in each round trip.
  if (flow_.granted_bytes() == 0) return;
  if (granted_ == TimePoint()) granted_ = loop_.now();
  SetHeld(HeldFor::kNothing);
  WidenWindow();
}

void ScheduledStream::SetHeld(HeldFor held_for) {
  const HeldFor before = std::exchange(held_for_, held_for);
  if (before == held_for) return;
  const bool is_held = held_for != HeldFor::kNothing;
  if (connection_ != nullptr && is_held != (before != HeldFor::kNothing)) connection_->OnResponseHeld(is_held);
  if (!given_up()) user_->OnResponseHeld(held_for);
}

void ScheduledStream::WidenWindow() {
  const int64_t bytes = flow_.TakeWidening();
  if (bytes == 0 || connection_ == nullptr) return;
  connection_->session()->Grant(stream_, static_cast<uint32_t>(bytes));
  connection_->FlushLater();
}

bool ScheduledStream::Tell(const StreamEnd* end, const absl::Status& why) {
  return !std::exchange(told_, true) && user_->OnStreamOver(end, why);
}

// It is destroyed at the end of the turn.
void ScheduledStream::EndUnsent(absl::Status why) {
  phase_ = Phase::kEnded;
  const bool waited = WaitHook::is_linked();
  WaitHook::unlink();
  QueueHook::unlink();
  if (!end_status_.ok()) why = end_status_;
  if (absl::IsDeadlineExceeded(why)) loop_.metrics().CountTimeout(TimeoutKind::kQueueDeadline);
  loop_.Forget(*this);
  Tell(nullptr, why);
  if (!waited) options_.worker->OnStreamUnused();
}

// The allowance counts the resets that reach the worker. A call may be cancelled twice before its reset leaves.
bool ScheduledStream::MayReset() {
  const bool taken = phase_ == Phase::kReset || !end_status_.ok();
  return taken || connection_ == nullptr || !connection_->session()->on_wire(stream_) ||
         options_.worker->resets().Take(loop_.now());
}

bool ScheduledStream::Abandon(const absl::Status& why) {
  if (told_) return true;
  CountUnanswered(why);
  if (!MayReset()) {
    DropUntilReset(nullptr, why);
    return true;
  }
  end_status_ = why;
  return false;
}

void ScheduledStream::CountUnanswered(const absl::Status& why) {
  if (!absl::IsDeadlineExceeded(why) || response_ == Response::kReady || sent_ == TimePoint()) return;
  if (!std::exchange(unanswered_, true)) loop_.worker_table().OnUnanswered(options_.worker->row());
}

// The user need not wait for the reset. Most servers end the stream before, because they have the deadline. The
// response comes after all others. Rejected: to grant nothing more to it. Fan-outs that give up more calls than may be
// reset then fill MAX_CONCURRENT_STREAMS of each worker.
void ScheduledStream::DropUntilReset(const StreamEnd* end, const absl::Status& why) {
  options_.worker->resets().Wait(*this, connection_->unwanted_counter());
  loop_.schedule_run().OnUnwanted(id());
  Tell(end, why);
  AskForMore();  // the user may have had no room for all of a message
}

// If it is not on the wire, either it could not be sent, or it has ended since the schedule decided.
void ScheduledStream::Abort() {
  if (phase_ == Phase::kEnded || told_) return;
  const bool may_reset = MayReset();
  if (end_status_.ok()) {
    end_status_ = loop_.now() >= options_.deadline ? absl::DeadlineExceededError("the deadline passed")
                                                   : absl::CancelledError("the call was cancelled");
  }
  CountUnanswered(end_status_);
  if (!may_reset) return DropUntilReset(nullptr, end_status_);
  if (connection_ != nullptr) return ResetNow();
  WaitHook::unlink();
  End(end_status_, CallEnd::kAborted);
}

void ScheduledStream::ResetNow() {
  WaitHook::unlink();
  Connection* const connection = connection_;
  if (connection == nullptr) return;
  phase_ = Phase::kReset;
  connection->session()->Reset(stream_, reset_error_);
  connection->FlushLater();
}

// The user may have abandoned the call within OnResponseHeaders or OnResponseData. Its reset is then under way.
void ScheduledStream::RefuseResponse() {
  if (given_up() || !end_status_.ok()) return;
  if (MayReset()) return ResetNow();
  response_ = Response::kRefused;
  const StreamEnd end{StreamEnd::Kind::kReset, reset_error_, true};
  DropUntilReset(&end, absl::OkStatus());
}

void ScheduledStream::OnHeaderBytes(size_t wire_bytes) {
  loop_.schedule_run().OnHeaders(id(), static_cast<int64_t>(wire_bytes));
}

void ScheduledStream::OnHeaders(HeaderList headers, bool end_stream) {
  if (response_ == Response::kAwaited) response_ = Response::kBegun;
  if (end_stream) loop_.worker_table().OnResponded(options_.worker->row());
  if (!given_up() && !user_->OnResponseHeaders(std::move(headers), end_stream)) RefuseResponse();
}

void ScheduledStream::OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) {
  if (phase_ == Phase::kReset) return;
  const auto padding_bytes = static_cast<int64_t>(window_bytes - bytes.size());
  const MessagePrefixes::Part part = flow_.Receive(bytes, padding_bytes);
  if (!given_up() && !user_->OnResponseData(bytes, end_stream)) RefuseResponse();
  if (phase_ == Phase::kReset) return;
  if (part.whole_prefix && !ObserveReady()) return;
  const int64_t pending_bytes = end_stream ? 0 : flow_.pending_message_bytes();
  if (flow_.granted_bytes() > 0 || pending_bytes == 0) SetHeld(HeldFor::kNothing);
  if (part.message_bytes > 0) loop_.schedule_run().OnReceived(id(), part.message_bytes);
  if (part.whole_prefix && pending_bytes == 0 && connection_ != nullptr) loop_.schedule_run().OnReady(id(), 0, 0);
  if (!end_stream) TellReady(/*prefix_came=*/part.whole_prefix && pending_bytes > 0);
  // Restores the room for a prefix if padding took some of it. If a message did, the next grant restores the room.
  if (pending_bytes > 0 && (padding_bytes > 0 || flow_.low())) WidenWindow();
  if (!given_up()) user_->OnResponseCounted();
  if (pending_bytes == 0 && !end_stream) LetNextCome();
}

// Returns false if the stream has closed within.
bool ScheduledStream::ObserveReady() {
  if (response_ == Response::kReady || response_ == Response::kRefused) return true;
  response_ = Response::kReady;
  ready_after_ = loop_.now() - sent_;
  loop_.metrics().ObserveReady(absl::FromChrono(ready_after_));
  if (!told_) user_->OnResponseReady(ready_after_);
  return phase_ != Phase::kReset && connection_ != nullptr;
}

// The worker may have a next message. If the user has no room for it, the worker is not to blame for the wait.
void ScheduledStream::LetNextCome() {
  if (phase_ == Phase::kReset || connection_ == nullptr) return;
  if (!told_ && !user_->WantsNextMessage()) return SetHeld(HeldFor::kRoom);
  SetHeld(HeldFor::kNothing);
  flow_.OpenAhead();
  WidenWindow();
}

// An abandoned call has no user, and takes everything. A refused response has no messages, and waits for its
// reset. The schedule receives a prefix at once, even if the user has no room: the worker is not slow because the
// application is.
void ScheduledStream::TellReady(bool prefix_came) {
  if (connection_ == nullptr || phase_ == Phase::kReset) return;
  const bool refused = response_ == Response::kRefused;
  const int64_t pending_bytes = flow_.pending_message_bytes();
  const int64_t wanted_bytes = told_ ? pending_bytes : user_->WantedBytes();
  const bool asks = !refused && flow_.Ask(wanted_bytes);
  if (!refused && wanted_bytes > 0) flow_.OpenAhead();
  if (flow_.granted_bytes() == 0 && pending_bytes > 0) {
    SetHeld(flow_.asked_bytes() > 0 ? HeldFor::kGrant : HeldFor::kRoom);
  } else if (!refused && flow_.comes_unasked()) {
    SetHeld(HeldFor::kNothing);
    WidenWindow();
  }
  if (refused || (!asks && !prefix_came)) return;
  if (asks && !told_) user_->OnResponseAsked();
  // The schedule counts bytes that it granted without a bound as on their way, and the others cannot come yet.
  if (flow_.comes_unasked())
    return loop_.schedule_run().OnReady(id(), std::min(pending_bytes, flow_.granted_bytes()), 0);
  loop_.schedule_run().OnReady(id(), flow_.asked_bytes(), pending_bytes - flow_.asked_bytes());
}

void ScheduledStream::AskForMore() {
  if (flow_.pending_message_bytes() > 0) return TellReady(/*prefix_came=*/false);
  if (flow_.messages() > 0) LetNextCome();
}

void ScheduledStream::OnWritable() {
  if (!given_up()) user_->OnRequestWritable();
}

void ScheduledStream::OnClosed(StreamEnd end) {
  Connection& connection = *std::exchange(connection_, nullptr);
  connection.OnStreamClosed(options_.client);
  if (held_for_ != HeldFor::kNothing) connection.OnResponseHeld(false);
  WaitHook::unlink();
  DrainHook::unlink();
  if (!given_up()) user_->OnResponseCounted();
  const bool unhandled = end.kind == StreamEnd::Kind::kUnhandled && response_ == Response::kAwaited;
  if (unhandled && !given_up() && may_begin_again_ && ++unhandled_ <= kMaxUnhandled) {
    phase_ = Phase::kWaiting;
    return loop_.Park(*this);
  }
  const TimePoint now = loop_.now();
  if (end.reset_here && phase_ != Phase::kReset) options_.worker->resets().Count(now);
  const absl::Duration transfer = absl::FromChrono(now - std::max(sent_, granted_));
  loop_.metrics().ObserveTransfer(transfer);
  phase_ = Phase::kEnded;
  if (Tell(&end, end_status_)) {
    loop_.worker_table().OnArrived(options_.worker->row(), absl::FromChrono(ready_after_), transfer);
  }
  // Everything that came on the stream came before its end. More may be on its way only if this side ended the stream.
  const bool all_came = !end.reset_here && end.kind != StreamEnd::Kind::kLost;
  loop_.Finish(*this, all_came ? CallEnd::kArrived : CallEnd::kAborted);
}

// The user comes first: if it adds a retry, the block stays alive, and keeps its place in the queue.
void ScheduledStream::End(const absl::Status& why, CallEnd how) {
  phase_ = Phase::kEnded;
  QueueHook::unlink();
  Tell(nullptr, why);
  loop_.Finish(*this, how);
}

}  // namespace sluice
