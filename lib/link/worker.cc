#include "lib/link/worker.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_metrics.h"
#include "lib/net/worker_address.h"
#include "lib/tcp/tcp_report.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr nanoseconds kFirstBackOff = milliseconds(200);
constexpr nanoseconds kMaxBackOff = seconds(5);
constexpr double kBackOffFactor = 1.6;
constexpr double kBackOffJitter = 0.2;
// For one address. A lost SYN is sent again after 1 s and 3 s.
constexpr nanoseconds kAttemptTimeout = seconds(5);
// After a connection that lasted for less, the worker backs off instead of reconnecting at once.
constexpr nanoseconds kStable = seconds(1);

// The bytes of a handshake that cross the port: a SYN-ACK and the server's SETTINGS; with TLS a chain of certificates.
// Room for TLS is requested once TCP is connected, because each attempt at a dead host would hold it for a stall
// timeout.
constexpr int64_t kTcpHandshakeBytes = 192;
constexpr int64_t kTlsHandshakeBytes = 6 << 10;
// A handshake without room for this time has failed: other processes of the host block the link.
constexpr nanoseconds kMaxHandshakeWait = seconds(60);
// Number of calls that may wait for a worker even if the queue is full, because all workers of a link may connect at
// the same time.
constexpr int64_t kMinWaiting = 64;

}  // namespace

Worker::Worker(LinkLoop& loop, std::string target, std::shared_ptr<TlsContext> tls, std::string server_name)
    : loop_(loop),
      target_(std::move(target)),
      tls_(std::move(tls)),
      server_name_(std::move(server_name)),
      row_(loop.worker_table().Add(target_)),
      back_off_(kFirstBackOff) {}

Worker::~Worker() {
  loop_.timers().Clear(timer_);
  loop_.timers().Clear(reset_timer_);
  LeaveRoom();
  if (handshake_out_) loop_.schedule_run().OnFinished(id(), CallEnd::kAborted);
  if (connected()) loop_.worker_table().OnForgotten(row_);
  if (const auto forgotten = loop_.worker_table().Remove(row_))
    loop_.schedule_run().ForgetWorker(WorkerTable::ScheduleId(*forgotten));
  if (connection_ != nullptr) connection_->Close();
  for (const auto& connection : leaving_) connection->Close();
}

std::string Worker::authority() const {
  if (tls_ != nullptr && !tls_->options().server_name.empty()) return tls_->options().server_name;
  return AuthorityOf(target_);
}

void Worker::Connect() {
  if (connection_ == nullptr && !trying_) LookUp();
}

void Worker::Close() {
  loop_.timers().Clear(timer_);
  look_up_.reset();
  trying_ = true;
  failure_ = absl::UnavailableError(absl::StrCat(target_, ": the link is closed"));
  if (connected()) loop_.worker_table().OnForgotten(row_);
  // Remove the connections before their calls receive events, because the calls may use this worker.
  leaving_.push_back(std::move(connection_));
  for (auto& connection : std::exchange(leaving_, {})) {
    if (connection == nullptr) continue;
    connection->Close();
    loop_.Bury(std::move(connection));
  }
  EndWaiting(failure_);
}

Connection* Worker::Sendable() const {
  return connected() && connection_->session()->open_slots() > 0 ? connection_.get() : nullptr;
}

void Worker::Wait(ScheduledStream& call) {
  if (const absl::Status room = CheckRoom(); !room.ok()) return loop_.CancelCall(call, room);
  waiting_.push_back(call);
  call.CountIn(waiting_calls_);
  Connect();
  if (!failure_.ok()) EndWaiting(failure_);
}

void Worker::OnStreamUnused() {
  if (Sendable() != nullptr) ResumeWaiting();
}

// A hung worker must not fill the queue of the link. The number of calls that wait for it is therefore at most the
// number of free places. One such worker leaves half of the queue, and n of them leave 1/(n + 1). Rejected: a fixed
// share. A hung rack could fill the queue, and a link with one worker would refuse calls while the queue is empty.
absl::Status Worker::CheckRoom() const {
  const auto waiting = static_cast<int64_t>(waiting_calls_);
  if (waiting < kMinWaiting) return absl::OkStatus();
  const int64_t queue_limit = loop_.schedule().options().queue_limit;
  const int64_t bound = std::max(kMinWaiting, queue_limit - loop_.schedule().State().waiting_calls);
  if (waiting < bound) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(target_, ": ", waiting, " calls wait for this worker; the bound is ",
                                                   bound, ", the free places of the queue, and queue_limit is ",
                                                   queue_limit));
}

// --- The steps to a connection: look-up, room for the handshake, the handshake, back-off.

void Worker::LookUp() {
  trying_ = true;
  next_address_ = 0;
  look_up_ = loop_.executor().Resolve(target_, [this](absl::StatusOr<std::vector<WorkerAddress>> addresses) {
    look_up_.reset();
    if (!addresses.ok()) return BackOff(addresses.status());
    if (addresses->empty()) return BackOff(absl::UnavailableError("the name has no address"));
    addresses_ = *std::move(addresses);
    AskForRoom(kTcpHandshakeBytes);
  });
}

void Worker::AskForRoom(int64_t bytes) {
  waits_for_room_ = true;
  // After TCP has connected, the attempt is no longer a retry: the host is alive.
  const bool retry = connection_ == nullptr && (!failure_.ok() || next_address_ > 0);
  const absl::Status asked = loop_.schedule_run().SubmitAhead(
      {.response_bytes = bytes, .tag = Scheduled::tag(), .retry = retry}, loop_.now() + kMaxHandshakeWait, room_);
  if (!asked.ok()) EndUnsent(asked);
}

void Worker::LeaveRoom() {
  if (std::exchange(waits_for_room_, false)) loop_.schedule_run().Cancel(room_);
}

// Back off only if the schedule has ended the wait. If this worker has ended it, do nothing.
void Worker::EndUnsent(absl::Status why) {
  if (!std::exchange(waits_for_room_, false)) return;
  loop_.Bury(std::move(connection_));
  BackOff(why);
}

void Worker::Send(int64_t) {
  waits_for_room_ = false;
  handshake_out_ = true;
  if (connection_ != nullptr) return StartTls();
  connection_ = std::make_unique<Connection>(loop_.executor(), loop_.flushes(),
                                             Connection::Options{.address = addresses_[next_address_],
                                                                 .tls = tls_,
                                                                 .server_name = ServerName(),
                                                                 .session = loop_.workers().session_options()},
                                             *this);
  WatchAttempt();
}

void Worker::WatchAttempt() {
  timer_ = loop_.timers().Set(loop_.now() + kAttemptTimeout, [this] {
    OnAttemptFailed(absl::UnavailableError(
        absl::StrCat("no connection within ", absl::FormatDuration(absl::FromChrono(kAttemptTimeout)))));
  });
}

void Worker::OnTcpConnected(Connection& connection) {
  if (&connection != connection_.get()) return;
  EndHandshake(CallEnd::kArrived);
  AskForRoom(kTlsHandshakeBytes);
}

void Worker::StartTls() {
  connection_->StartTls();
  WatchAttempt();
}

void Worker::EndHandshake(CallEnd end) {
  loop_.timers().Clear(timer_);
  if (std::exchange(handshake_out_, false)) loop_.schedule_run().OnFinished(id(), end);
}

void Worker::OnAttemptFailed(const absl::Status& why) {
  loop_.Bury(std::move(connection_));
  LeaveRoom();
  EndHandshake(CallEnd::kAborted);
  if (++next_address_ < addresses_.size()) return AskForRoom(kTcpHandshakeBytes);
  BackOff(why);
}

void Worker::BackOff(const absl::Status& why) {
  std::string text(why.message());
  // The error already names the target if the address is the target.
  if (!absl::StrContains(text, target_)) text = absl::StrCat(target_, ": ", text);
  if (tls_ != nullptr && !tls_->reload_status().ok()) {
    absl::StrAppend(&text, "; the files of TLS have changed and are not taken: ", tls_->reload_status().message());
  }
  failure_ = absl::UnavailableError(text);
  loop_.worker_table().OnUnreachable(row_);
  LookUpLater();
  EndWaiting(failure_);
}

void Worker::LookUpLater() {
  const double jitter = 1 + kBackOffJitter * (2 * loop_.executor().Random() - 1);
  const auto pause = std::chrono::duration_cast<nanoseconds>(back_off_ * jitter);
  back_off_ = std::min(std::chrono::duration_cast<nanoseconds>(back_off_ * kBackOffFactor), kMaxBackOff);
  timer_ = loop_.timers().Set(loop_.now() + pause, [this] { LookUp(); });
}

// --- The events of a connection.

void Worker::OnUp(Connection&) {
  trying_ = false;
  failure_ = absl::OkStatus();
  back_off_ = kFirstBackOff;
  up_since_ = loop_.now();
  EndHandshake(CallEnd::kArrived);
  if (const auto reconnected_after = loop_.worker_table().OnConnected(row_, up_since_)) {
    loop_.metrics().ObserveReconnect(*reconnected_after);
  }
  while (!awaiting_.empty()) {
    ConnectedWaiter& waiter = awaiting_.front();
    awaiting_.pop_front();
    waiter.OnConnected();
  }
  ResumeWaiting();
}

void Worker::OnSlots(Connection& connection) {
  if (&connection != connection_.get()) {
    if (connection.session()->streams() == 0) Leave(connection);
    return;
  }
  if (!connection.session()->going_away()) return ResumeWaiting();
  if (connection.session()->goaway_error() == Http2Error::kEnhanceYourCalm) resets_.Lower();
  // Its streams end on this connection, and the next calls use a new one.
  OnLost();
  if (connection.session()->streams() == 0) {
    loop_.Bury(std::move(connection_));
  } else {
    leaving_.push_back(std::move(connection_));
  }
  // A busy connection may use up its stream numbers within a second, which is not a failure.
  if (connection.session()->out_of_streams() || loop_.now() - up_since_ >= kStable) return LookUp();
  trying_ = true;
  LookUpLater();
}

void Worker::Leave(Connection& connection) {
  const auto found = std::find_if(leaving_.begin(), leaving_.end(),
                                  [&connection](const auto& leaving) { return leaving.get() == &connection; });
  if (found == leaving_.end()) return;
  loop_.Bury(std::move(*found));
  leaving_.erase(found);
}

void Worker::OnDown(Connection& connection, absl::Status why) {
  if (&connection != connection_.get()) return Leave(connection);
  if (!connection.up()) return OnAttemptFailed(why);
  OnLost();
  loop_.Bury(std::move(connection_));
  if (loop_.now() - up_since_ < kStable) {
    trying_ = true;
    return BackOff(why);
  }
  LookUp();
}

void Worker::OnLost() {
  loop_.worker_table().OnLost(row_, loop_.now());
}

void Worker::ResumeWaiting() {
  size_t slots = connection_->session()->open_slots();
  for (; slots > 0 && !waiting_.empty(); --slots) {
    ScheduledStream& call = waiting_.front();
    call.WaitHook::unlink();
    call.Resume();
    if (!connected()) return;
  }
}

void Worker::EndWaiting(const absl::Status& why) {
  while (!waiting_.empty()) {
    ScheduledStream& call = waiting_.front();
    call.WaitHook::unlink();
    loop_.CancelCall(call, why);
  }
}

void Worker::WaitForReset(ScheduledStream& call) {
  if (call.WaitHook::is_linked()) return;
  if (resetting_.empty()) {
    loop_.timers().Clear(reset_timer_);
    reset_timer_ = loop_.timers().Set(resets_.Next(), [this] { ResetWaiting(); });
  }
  resetting_.push_back(call);
}

// The list contains only open streams, because a stream leaves it when it ends.
void Worker::ResetWaiting() {
  reset_timer_ = TimerQueue::Id();
  while (!resetting_.empty() && resets_.Take(loop_.now())) {
    ScheduledStream& call = resetting_.front();
    resetting_.pop_front();
    call.ResetNow();
  }
  if (!resetting_.empty()) reset_timer_ = loop_.timers().Set(resets_.Next(), [this] { ResetWaiting(); });
}

void Worker::OnTcpReport(std::string_view text) {
  const std::optional<TcpReport> report = ParseTcpReport(text);
  if (!report.has_value()) return;
  const auto news = loop_.worker_table().OnReport(row_, report->port, {report->retransmits, report->rtos});
  loop_.metrics().CountWorkerReport(WorkerReport::kRetransmit, news.retransmits);
  loop_.metrics().CountWorkerReport(WorkerReport::kRto, news.rtos);
}

void Worker::AppendTcp(std::vector<WorkerTable::Socket>& sockets) const {
  if (connection_ == nullptr) return;
  if (auto socket = connection_->Tcp())
    sockets.push_back({row_, *std::move(socket), loop_.schedule().Load(schedule_id())});
}

// Returns the name that the certificate must contain.
std::string Worker::ServerName() const {
  if (tls_ == nullptr) return "";
  if (!tls_->options().server_name.empty()) return tls_->options().server_name;
  if (!server_name_.empty()) return server_name_;
  const absl::StatusOr<WorkerTarget> target = ParseWorkerTarget(target_);
  return target.ok() ? target->host : "";  // the look-up refuses a target without a name
}

}  // namespace sluice
