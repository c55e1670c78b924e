#include "lib/link/worker.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_metrics.h"
#include "lib/net/worker_address.h"
#include "lib/scheduling/limit_status.h"
#include "lib/tcp/tcp_report.h"
#include "lib/tls/certificate_name.h"

namespace sluice {
namespace {

// After a connection that lasted for less, the worker backs off instead of reconnecting at once.
constexpr std::chrono::seconds kStable(1);

}  // namespace

Worker::Worker(LinkLoop& loop, std::string target, std::shared_ptr<TlsContext> tls, std::string server_name)
    : loop_(loop),
      connector_(loop, std::move(target), std::move(tls), std::move(server_name), *this),
      row_(loop.worker_table().Add(connector_.target())),
      connections_(loop, row_),
      resets_(loop, [this] { OnResetsLate(); }) {}

Worker::~Worker() {
  connections_.Close();
  const auto forgotten = loop_.worker_table().Remove(row_);
  if (forgotten) loop_.schedule_run().ForgetWorker(WorkerTable::ScheduleId(*forgotten));
}

std::string Worker::authority() const {
  const std::string name = tls() != nullptr ? tls()->options().server_name : "";
  return name.empty() || IsUriName(name) ? AuthorityOf(target()) : name;
}

void Worker::Connect() {
  if (!connected()) connector_.Connect();
}

void Worker::Close() {
  connector_.Close();
  connections_.Close();
  EndWaiting(failure());
}

Connection* Worker::Sendable(uint64_t client) const {
  return connections_.Find(client, /*must_suit=*/MayConnect());
}

bool Worker::WantsConnection() const {
  return !connected() || relieves_ || (waiting_calls_ > 0 && !connections_.full());
}

void Worker::Wait(ScheduledStream& call) {
  if (const absl::Status room = CheckRoom(call); !room.ok()) return loop_.Refuse(call, QueueRefusal::kWorker, room);
  const bool sendable = Sendable(call.client()) != nullptr;  // after a refusal; OnSlots follows
  if (!sendable && connections_.open_slots() > 0) {
    WaitApart(call);
    return ResumeWaiting();  // other calls may use the streams
  }
  waiting_.push_back(call);
  call.CountIn(waiting_calls_);
  if (!sendable && WantsConnection()) connector_.Connect();
  if (!failure().ok()) EndWaiting(failure());
}

void Worker::WaitApart(ScheduledStream& call) {
  waiting_apart_.push_back(call);
  call.CountIn(waiting_calls_);
  connector_.Connect();
}

void Worker::JoinWaiting() {
  waiting_.splice(waiting_.begin(), waiting_apart_);
}

void Worker::OnStreamUnused() {
  if (connections_.open_slots() > 0) ResumeWaiting();
}

// Rejected: a fixed share. A hung rack could fill the queue, and a link with one worker would refuse calls while the
// queue is empty.
int64_t Worker::CallBound(int64_t limit, int64_t all_calls) {
  return std::max(kMinCalls, limit - all_calls);
}

// A hung worker must not fill the queue of the link. Rejected: to count the held calls of workers that are not slow.
// Such a worker is full because the link is busy, and calls to it may use the whole queue.
absl::Status Worker::CheckRoom(const ScheduledStream& call) const {
  const WorkerLoad load = loop_.schedule().Load(schedule_id());
  const int64_t waiting = static_cast<int64_t>(waiting_calls_) + (load.slow ? load.held_calls : 0);
  // Only the calls that wait already count, so a call of any size may wait alone.
  const int64_t waiting_bytes = loop_.schedule_run().queued_bytes().Of(schedule_id()) - call.queued_bytes.bytes();
  const int64_t queue_bytes = loop_.schedule().options().queue_bytes;
  const int64_t free_bytes = std::max<int64_t>(queue_bytes - loop_.schedule_run().queued_bytes().all(), 0);
  if (waiting > 0 && waiting_bytes > free_bytes) {
    return AtLimit("schedule.queue_bytes",
                   absl::StrCat(target(), ": ", waiting_bytes, " bytes of requests wait for this worker; the bound is ",
                                free_bytes, ", the free bytes of the queue, and queue_bytes is ", queue_bytes));
  }
  if (waiting < kMinCalls) return absl::OkStatus();
  const int64_t queue_limit = loop_.schedule().options().queue_limit;
  const int64_t bound = CallBound(queue_limit, loop_.schedule().State().waiting_calls);
  if (waiting < bound) return absl::OkStatus();
  return AtLimit("schedule.queue_limit",
                 absl::StrCat(target(), ": ", waiting, " calls wait for this worker; the bound is ", bound,
                              ", the free places of the queue, and queue_limit is ", queue_limit));
}

void Worker::OnConnected(std::unique_ptr<Connection> connection) {
  connections_.Add(std::move(connection));
}

void Worker::OnConnectFailed() {
  if (!connected()) {
    loop_.worker_table().OnUnreachable(row_);
    return EndWaiting(failure());
  }
  relieves_ = false;  // unless it is still wanted: see OnResetsLate
  JoinWaiting();
  ResumeWaiting();
}

void Worker::OnUp(Connection& connection) {
  if (const auto reconnected_after = loop_.worker_table().OnConnected(row_, connection.up_since())) {
    loop_.metrics().ObserveReconnect(*reconnected_after);
  }
  relieves_ = false;
  while (!awaiting_.empty()) {
    ConnectedWaiter& waiter = awaiting_.front();
    awaiting_.pop_front();
    waiter.OnConnected();
  }
  JoinWaiting();
  ResumeWaiting();
  if (WantsConnection()) connector_.Connect();
}

void Worker::OnSlots(Connection& connection) {
  const Http2Session& session = *connection.session();
  // Its streams end on this connection, and the next calls use another.
  const bool goes_away = connections_.Leaves(connection) && connections_.Leave(connection);
  ResumeWaiting();
  if (!goes_away) return;
  if (session.goaway_error() == Http2Error::kEnhanceYourCalm) resets_.Lower();
  // A busy connection may use up its stream numbers within a second, which is not a failure.
  if (session.out_of_streams() || loop_.now() - connection.up_since() >= kStable) return Reconnect();
  connector_.ConnectLater();
}

void Worker::OnDown(Connection& connection, absl::Status why) {
  const bool took_calls = connections_.Remove(connection);
  ResumeWaiting();
  if (!took_calls) return;
  if (loop_.now() - connection.up_since() < kStable) return connector_.BackOff(why);
  Reconnect();
}

// A loss is not a failure, and a back-off may be for an extra connection.
void Worker::Reconnect() {
  if (!WantsConnection()) return;
  connector_.Connect();
  if (!connected()) connector_.ConnectNow();
}

// Rejected: to end the only connection before the next is up. The worker may accept none.
void Worker::OnResetsLate() {
  relieves_ = connections_.LeaveUnwanted() && !connections_.full();
  if (relieves_) connector_.Connect();
}

// Calls that no connection suits let others pass.
void Worker::ResumeWaiting() {
  size_t slots = connections_.open_slots();
  while (slots > 0 && !waiting_.empty() && connections_.open_slots() > 0) {
    ScheduledStream& call = waiting_.front();
    call.WaitHook::unlink();
    if (Sendable(call.client()) == nullptr) {
      WaitApart(call);
      continue;
    }
    --slots;
    loop_.Resume(call);
  }
}

void Worker::EndWaiting(const absl::Status& why) {
  JoinWaiting();
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

}  // namespace sluice
