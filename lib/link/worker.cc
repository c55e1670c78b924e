#include "lib/link/worker.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_metrics.h"
#include "lib/net/worker_address.h"
#include "lib/tcp/tcp_report.h"

namespace sluice {
namespace {

// After a connection that lasted for less, the worker backs off instead of reconnecting at once.
constexpr std::chrono::seconds kStable(1);

}  // namespace

Worker::Worker(LinkLoop& loop, std::string target, std::shared_ptr<TlsContext> tls, std::string server_name)
    : loop_(loop),
      connector_(loop, std::move(target), std::move(tls), std::move(server_name), *this),
      row_(loop.worker_table().Add(connector_.target())),
      resets_(loop) {}

Worker::~Worker() {
  WorkerTable& table = loop_.worker_table();
  if (connected()) table.OnForgotten(row_);
  if (const auto forgotten = table.Remove(row_)) loop_.schedule_run().ForgetWorker(WorkerTable::ScheduleId(*forgotten));
  if (connection_ != nullptr) connection_->Close();
  for (const auto& connection : leaving_) connection->Close();
}

std::string Worker::authority() const {
  if (tls() != nullptr && !tls()->options().server_name.empty()) return tls()->options().server_name;
  return AuthorityOf(target());
}

void Worker::Connect() {
  if (connection_ == nullptr) connector_.Connect();
}

void Worker::Close() {
  connector_.Close();
  if (connected()) loop_.worker_table().OnForgotten(row_);
  // Remove the connections before their calls receive events, because the calls may use this worker.
  leaving_.push_back(std::move(connection_));
  for (auto& connection : std::exchange(leaving_, {})) {
    if (connection == nullptr) continue;
    connection->Close();
    loop_.Bury(std::move(connection));
  }
  EndWaiting(failure());
}

Connection* Worker::Sendable() const {
  return connected() && connection_->session()->open_slots() > 0 ? connection_.get() : nullptr;
}

void Worker::Wait(ScheduledStream& call) {
  if (const absl::Status room = CheckRoom(); !room.ok()) return loop_.Refuse(call, QueueRefusal::kWorker, room);
  waiting_.push_back(call);
  call.CountIn(waiting_calls_);
  Connect();
  if (!failure().ok()) EndWaiting(failure());
}

void Worker::OnStreamUnused() {
  if (Sendable() != nullptr) ResumeWaiting();
}

// Rejected: a fixed share. A hung rack could fill the queue, and a link with one worker would refuse calls while the
// queue is empty.
int64_t Worker::CallBound(int64_t limit, int64_t all_calls) {
  return std::max(kMinCalls, limit - all_calls);
}

// A hung worker must not fill the queue of the link. Rejected: to count the held calls of workers that are not slow.
// Such a worker is full because the link is busy, and calls to it may use the whole queue.
absl::Status Worker::CheckRoom() const {
  const WorkerLoad load = loop_.schedule().Load(schedule_id());
  const int64_t waiting = static_cast<int64_t>(waiting_calls_) + (load.slow ? load.held_calls : 0);
  if (waiting < kMinCalls) return absl::OkStatus();
  const int64_t queue_limit = loop_.schedule().options().queue_limit;
  const int64_t bound = CallBound(queue_limit, loop_.schedule().State().waiting_calls);
  if (waiting < bound) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(target(), ": ", waiting,
                                                   " calls wait for this worker; the bound is ", bound,
                                                   ", the free places of the queue, and queue_limit is ", queue_limit));
}

void Worker::OnConnected(std::unique_ptr<Connection> connection) {
  connection_ = std::move(connection);
  up_since_ = loop_.now();
}

void Worker::OnConnectFailed() {
  loop_.worker_table().OnUnreachable(row_);
  EndWaiting(failure());
}

void Worker::OnUp(Connection&) {
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
  if (connection.session()->out_of_streams() || loop_.now() - up_since_ >= kStable) return connector_.Connect();
  connector_.ConnectLater();
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
  OnLost();
  loop_.Bury(std::move(connection_));
  if (loop_.now() - up_since_ < kStable) return connector_.BackOff(why);
  connector_.Connect();
}

void Worker::OnLost() {
  loop_.worker_table().OnLost(row_, loop_.now());
}

void Worker::ResumeWaiting() {
  size_t slots = connection_->session()->open_slots();
  for (; slots > 0 && !waiting_.empty(); --slots) {
    ScheduledStream& call = waiting_.front();
    call.WaitHook::unlink();
    loop_.Resume(call);
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

}  // namespace sluice
