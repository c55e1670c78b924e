#include "lib/link/wire_call.h"

#include <algorithm>
#include <utility>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/request.h"
#include "lib/link/connection.h"
#include "lib/link/link_core.h"
#include "lib/link/tcp_report.h"
#include "lib/link/worker.h"
#include "lib/telemetry/aggregator_metrics.h"

namespace sluice {
namespace {

// How often a call is sent again that its worker never looked at. A server that refuses each time has failed.
constexpr int kMostUnhandled = 3;

// A worker that says CANCELLED, though nobody here has cancelled, knows that the deadline has passed, which this side
// may not have looked at yet; or it has failed, since it may be shutting down.
void ExplainCancelled(bool late, RpcEnd& end) {
  if (!absl::IsCancelled(end.status)) return;
  end.status = late ? absl::DeadlineExceededError("the deadline passed")
                    : absl::UnavailableError(absl::StrCat("the worker cancelled the call: ", end.status.message()));
}

}  // namespace

WireCall::WireCall(LinkCore& core, CallSpec spec, CallOwner& owner)
    : core_(core), spec_(std::move(spec)), owner_(&owner), submitted_(core.now()), window_(spec_.server_streaming) {}

CallRequest WireCall::Request() {
  return {.response_bytes = std::clamp<int64_t>(spec_.response_bytes, 0, kMaxResponseBytes),
          .tag = Scheduled::tag(),
          .estimated = spec_.estimated,
          .parked = spec_.worker->Sendable() == nullptr};
}

void WireCall::Resume() {
  core_.Unpark(*this);
}

void WireCall::Send(CallId id, int64_t granted_bytes) {
  id_ = id;
  Connection* const connection = spec_.worker->Sendable();
  if (connection == nullptr) return core_.Park(*this);
  const TimePoint now = core_.now();
  window_ = StreamWindow(spec_.server_streaming);
  reader_.emplace(ResponseReader::Options{.max_message_bytes = spec_.max_message_bytes,
                                          .server_streaming = spec_.server_streaming,
                                          .buffers = &core_.message_buffers()});
  window_.Grant(granted_bytes);
  // The owner first: the stream may end within Open.
  sent_ = now;
  connection_ = connection;
  const absl::StatusOr<int32_t> stream = connection->session()->Open(
      Head(now), *spec_.request, /*end_stream=*/true, static_cast<uint32_t>(window_.TakeWidening()), *this);
  if (!stream.ok()) {
    connection_ = nullptr;
    return core_.Park(*this);
  }
  stream_ = *stream;
  connection->FlushLater();
  core_.metrics().ObserveQueueWait(absl::FromChrono(now - submitted_));
  if (granted_bytes > 0) {
    asked_ = true;
    granted_ = now;
    core_.workers().OnAsked(spec_.worker->row(), now, spec_.server_streaming);
  }
  owner_->OnSent(spec_.tag);
}

HeaderList WireCall::Head(TimePoint now) const {
  absl::Duration timeout = absl::InfiniteDuration();
  if (spec_.deadline != TimePoint::max()) timeout = absl::FromChrono(spec_.deadline - now);
  return ToHeaders({.path = spec_.path,
                    .authority = spec_.worker->authority(),
                    .tls = spec_.worker->tls() != nullptr,
                    .timeout = timeout,
                    .gzip = spec_.gzip_request,
                    .metadata = spec_.metadata.get(),
                    .more_metadata = spec_.more_metadata.get()});
}

void WireCall::Grant(int64_t bytes) {
  if (connection_ == nullptr) return;
  if (!std::exchange(asked_, true)) {
    granted_ = core_.now();
    core_.workers().OnAsked(spec_.worker->row(), granted_, spec_.server_streaming);
  }
  window_.Grant(bytes);
  SetPaused(false);
  WidenWindow();
}

void WireCall::SetPaused(bool paused) {
  if (!asked_ || std::exchange(paused_, paused) == paused) return;
  WorkerTable& workers = core_.workers();
  if (paused) return workers.OnPaused(spec_.worker->row());
  workers.OnResumed(spec_.worker->row(), core_.now());
}

void WireCall::WidenWindow() {
  const int64_t bytes = window_.TakeWidening();
  if (bytes == 0 || connection_ == nullptr) return;
  connection_->session()->Grant(stream_, static_cast<uint32_t>(bytes));
  connection_->FlushLater();
}

void WireCall::EndUnsent(absl::Status why) {
  ended_ = true;
  WaitHook::unlink();
  if (!end_status_.ok()) why = end_status_;
  if (absl::IsDeadlineExceeded(why)) core_.metrics().CountTimeout(TimeoutKind::kQueueDeadline);
  CallOwner* const owner = std::exchange(owner_, nullptr);
  const size_t tag = spec_.tag;
  core_.Forget(*this);
  if (owner != nullptr) owner->OnEnded(tag, {.status = std::move(why)});
}

bool WireCall::Abandon(const absl::Status& why) {
  if (connection_ == nullptr || owner_ == nullptr || spec_.worker->TakeReset(core_.now())) return false;
  spec_.worker->WaitForReset(*this);
  std::exchange(owner_, nullptr)->OnEnded(spec_.tag, {.status = why});
  return true;
}

// The schedule may have given it up before.
void WireCall::ResetNow() {
  if (reset_) return ResetStream();
  core_.CancelCall(*this, absl::CancelledError("the call was cancelled"));
}

// Where it is not on the wire, it could not be sent after all, or has ended, before the schedule's word came through.
void WireCall::Abort() {
  if (ended_) return;
  // Whoever cancels a call has asked for its reset before; see Abandon.
  const bool may_reset = !end_status_.ok() || connection_ == nullptr || spec_.worker->TakeReset(core_.now());
  if (end_status_.ok()) {
    end_status_ = core_.now() >= spec_.deadline ? absl::DeadlineExceededError("the deadline passed")
                                                : absl::CancelledError("the call was cancelled");
  }
  if (!may_reset) return ResetLater();
  if (connection_ != nullptr) return ResetStream();
  WaitHook::unlink();
  End({.status = end_status_}, CallEnd::kAborted);
}

// Nothing more of it is granted. Most servers end it themselves, since they know the deadline.
void WireCall::ResetLater() {
  reset_ = true;
  spec_.worker->WaitForReset(*this);
  if (owner_ != nullptr) std::exchange(owner_, nullptr)->OnEnded(spec_.tag, {.status = end_status_});
}

void WireCall::ResetStream() {
  reset_ = true;
  WaitHook::unlink();
  Connection* const connection = connection_;
  if (connection == nullptr) return;
  connection->session()->Reset(stream_, Http2Error::kCancel);
  connection->FlushLater();
}

void WireCall::OnHeaders(HeaderList headers, bool end_stream) {
  reader_->OnHeaders(std::move(headers), end_stream);
  if (reader_->failed()) ResetStream();
}

void WireCall::OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) {
  if (reset_) return;
  const int64_t prefix_before = reader_->prefix_bytes();
  reader_->OnData(bytes, end_stream);
  const int64_t prefix_bytes = reader_->prefix_bytes() - prefix_before;
  constexpr auto kWhole = static_cast<int64_t>(MessageReader::kPrefixBytes);
  const bool whole_prefix = reader_->prefix_bytes() / kWhole > prefix_before / kWhole;
  const auto data_bytes = static_cast<int64_t>(bytes.size());
  const int64_t padding_bytes = static_cast<int64_t>(window_bytes) - data_bytes;
  const int64_t message_bytes = data_bytes - prefix_bytes;
  window_.Receive(message_bytes, prefix_bytes, padding_bytes);
  message_bytes_ += message_bytes;
  if (reader_->failed()) return ResetStream();
  if (!std::exchange(ready_, ready_ || whole_prefix) && ready_) {
    ready_after_ = core_.now() - sent_;
    core_.metrics().ObserveReady(absl::FromChrono(ready_after_));
    if (owner_ != nullptr) owner_->OnReady(spec_.tag, ready_after_);
    if (reset_ || connection_ == nullptr) return;
  }
  const int64_t pending_bytes = reader_->pending_message_bytes();
  SetPaused(window_.granted_bytes() == 0 && pending_bytes > 0);
  if (message_bytes > 0) core_.Received(*this, message_bytes);
  if (whole_prefix && connection_ != nullptr) core_.Ready(id_, pending_bytes);
  // What a whole message or padding took of the room for the next prefix; within a message the next grant makes it
  // good.
  if (connection_ != nullptr && !end_stream && (pending_bytes == 0 || padding_bytes > 0 || window_.low()))
    WidenWindow();
  HandOut();
}

void WireCall::HandOut() {
  std::string message;
  while (owner_ != nullptr && !reset_ && reader_->TakeMessage(message))
    owner_->OnMessage(spec_.tag, std::move(message));
}

void WireCall::OnClosed(StreamEnd end) {
  connection_ = nullptr;
  WaitHook::unlink();
  HandOut();
  RpcEnd rpc_end = reader_->End(end);
  if (rpc_end.unhandled && !reset_ && !ready_ && owner_ != nullptr && ++unhandled_ <= kMostUnhandled) {
    return core_.Park(*this);
  }
  const TimePoint now = core_.now();
  if (!end_status_.ok()) {
    rpc_end.status = end_status_;
  } else {
    ExplainCancelled(now >= spec_.deadline, rpc_end);
  }
  core_.metrics().ObserveSruTransfer(absl::FromChrono(now - std::max(sent_, granted_)));
  TellTable(rpc_end, now);
  // What came on the stream came before its end. Only where this side did not wait for that may more be on its way.
  const bool all_came = !reset_ && end.kind != StreamEnd::Kind::kLost;
  End(std::move(rpc_end), all_came ? CallEnd::kArrived : CallEnd::kAborted);
}

// The owner first: a retry that it adds keeps the block, and so its place in the queue, alive.
void WireCall::End(RpcEnd end, CallEnd how) {
  ended_ = true;
  CallOwner* const owner = std::exchange(owner_, nullptr);
  if (owner != nullptr) owner->OnEnded(spec_.tag, std::move(end));
  core_.Finish(*this, how);
}

void WireCall::TellTable(const RpcEnd& end, TimePoint now) {
  WorkerTable& workers = core_.workers();
  const size_t row = spec_.worker->row();
  SetPaused(false);
  if (asked_) workers.OnEnded(row, now, message_bytes_);
  if (end.status.ok()) {
    workers.OnAnswered(row, absl::FromChrono(ready_after_), absl::FromChrono(now - std::max(sent_, granted_)));
  }
  for (const auto& [key, value] : end.trailing_metadata) {
    if (key != kTcpReportKey) continue;
    const std::optional<TcpReport> report = ParseTcpReport(value);
    if (!report.has_value()) continue;
    const auto news = workers.OnReport(row, report->port, {report->retransmits, report->rtos});
    core_.metrics().CountWorkerReport(WorkerReport::kRetransmit, news.retransmits);
    core_.metrics().CountWorkerReport(WorkerReport::kRto, news.rtos);
  }
}

}  // namespace sluice
