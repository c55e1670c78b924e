#include "lib/sharing/lease_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fcntl.h>
#include <google/protobuf/arena.h>
#include <unistd.h>

#include "sluice/v1/link_sharing.pb.h"

#include "absl/strings/str_cat.h"
#include "lib/sharing/link_hello.h"
#include "lib/sharing/packet_socket.h"
#include "lib/sharing/sharing_metrics.h"
#include "lib/telemetry/metric_families.h"

namespace sluice {
namespace {

using boost::asio::posix::stream_descriptor;

constexpr size_t kMaxConnections = 256;
constexpr std::chrono::milliseconds kAcceptRetryDelay{100};

TimePoint Now() {
  return std::chrono::steady_clock::now();
}

// Another process wrote the report, so bound its values: they must not overflow the sums or exceed the budget.
ShareReport Sanitized(const v1::LinkReport& report, int64_t budget_bytes) {
  const auto within = [](int64_t value, int64_t most) { return std::clamp<int64_t>(value, 0, most); };
  constexpr int64_t kMost = int64_t{1} << 60;
  std::vector<ClassReport> classes;
  for (const v1::LinkClass& of : report.classes()) {
    if (classes.size() == TrafficClass::kMaxClasses) break;
    classes.push_back({.weight = CheckWeight(of.weight()).ok() ? of.weight() : 1,
                       .demand_bytes = within(of.demand_bytes(), kMost),
                       .received_bytes = within(of.received_bytes(), kMost)});
  }
  return {.acknowledged = report.acknowledged(),
          .limit_bytes = within(report.limit_bytes(), budget_bytes),
          .demand_bytes = within(report.demand_bytes(), kMost),
          .in_flight_bytes = within(report.in_flight_bytes(), budget_bytes),
          .need_bytes = within(report.need_bytes(), budget_bytes),
          .received_bytes = within(report.received_bytes(), kMost),
          .oldest_block = report.oldest_block(),
          .oldest_block_age = std::chrono::nanoseconds(within(report.oldest_block_age_ns(), kMost)),
          .classes = std::move(classes)};
}

}  // namespace

std::string_view SharingEventName(SharingEvent::Kind kind) {
  switch (kind) {
    case SharingEvent::Kind::kJoined:
      return "joined";
    case SharingEvent::Kind::kLeft:
      return "left";
    case SharingEvent::Kind::kExpired:
      return "expired";
    case SharingEvent::Kind::kReturned:
      return "returned";
    case SharingEvent::Kind::kRefused:
      return "refused";
  }
  return "unknown";
}

// Runs on the IO thread only after construction, except Collect. There is one for each server.
class LeaseServer::Core : public std::enable_shared_from_this<Core> {
 public:
  // Owns `acceptor_fd`, a duplicate of the descriptor of `listening`, because asio closes its descriptor.
  Core(boost::asio::io_context& context, ListeningSocket listening, int acceptor_fd, Options options,
       prometheus::Registry& registry)
      : context_(context),
        options_(std::move(options)),
        listening_(std::move(listening)),
        acceptor_(context, acceptor_fd),
        retry_(context),
        timer_(context),
        metrics_(registry),
        shares_(options_.shares, Now()) {}

  void Accept() {
    acceptor_.async_wait(stream_descriptor::wait_read,
                         [self = shared_from_this()](const boost::system::error_code& error) {
                           if (error || !self->acceptor_.is_open()) return;
                           const auto fd = AcceptPacketSocket(self->acceptor_.native_handle());
                           if (absl::IsUnavailable(fd.status())) return self->AcceptLater();
                           if (fd.ok()) self->Add(*fd);
                           self->Accept();
                         });
  }

  void Close() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    listening_.reset();  // pending handlers may keep this object a moment longer, and the next server needs the path
    retry_.cancel();
    timer_.cancel();
    const std::lock_guard<std::mutex> lock(mutex_);
    connections_.clear();
  }

  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  struct Connection {
    Connection(boost::asio::io_context& context, int fd) : socket(context, fd), hello_timer(context) {}
    stream_descriptor socket;
    boost::asio::steady_timer hello_timer;
    PeerCredentials peer;
    std::string application;  // empty before its hello
    double weight = 0;
    std::string label;
    std::vector<std::string> class_labels;
    ApplicationCounters counters;
    int64_t report_sent_ns = 0;
    LinkDivider::ClientState state;  // as of the last Count
  };

  // The usual cause is a lack of file descriptors. An immediate retry would keep the thread busy.
  void AcceptLater() {
    retry_.expires_after(kAcceptRetryDelay);
    retry_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->Accept();
    });
  }

  void Add(int fd) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const LinkDivider::ClientId id = ++last_id_;
    Connection& connection = *connections_.emplace(id, std::make_unique<Connection>(context_, fd)).first->second;
    const auto peer = PeerOf(fd);
    if (!peer.ok()) return Refuse(id, SharingRefusal::kUid, std::string(peer.status().message()));
    connection.peer = *peer;
    if (!MayJoin(connection.peer.uid)) {
      return Refuse(id, SharingRefusal::kUid, absl::StrCat("uid ", connection.peer.uid, " is not in allowed_uids"));
    }
    if (connections_.size() > kMaxConnections) {
      return Refuse(id, SharingRefusal::kFull, absl::StrCat("there are ", kMaxConnections, " processes already"));
    }
    AwaitHello(id, connection);
    Read(id, connection);
  }

  // A silent process must not keep one of the places.
  void AwaitHello(LinkDivider::ClientId id, Connection& connection) {  // with mutex_ held
    connection.hello_timer.expires_after(options_.hello_timeout);
    connection.hello_timer.async_wait([self = shared_from_this(), id](const boost::system::error_code& error) {
      if (error) return;
      const std::lock_guard<std::mutex> lock(self->mutex_);
      const auto found = self->connections_.find(id);
      if (found == self->connections_.end() || !found->second->application.empty()) return;
      self->Refuse(id, SharingRefusal::kProtocol, "no hello came in time");
    });
  }

  bool MayJoin(uid_t uid) const {
    if (options_.allowed_uids.empty()) return uid == geteuid();
    return std::find(options_.allowed_uids.begin(), options_.allowed_uids.end(), uid) != options_.allowed_uids.end();
  }

  void Read(LinkDivider::ClientId id, Connection& connection) {  // with mutex_ held
    connection.socket.async_wait(stream_descriptor::wait_read,
                                 [self = shared_from_this(), id](const boost::system::error_code& error) {
                                   if (!error) self->OnReadable(id);
                                 });
  }

  void OnReadable(LinkDivider::ClientId id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = connections_.find(id);
    if (found == connections_.end()) return;
    // The message has its memory here: to allocate each of its classes takes longer.
    alignas(std::max_align_t) std::array<char, 4096> memory;
    google::protobuf::Arena arena(memory.data(), memory.size());
    auto& message = *google::protobuf::Arena::CreateMessage<v1::ToLinkDaemon>(&arena);
    const absl::StatusOr<bool> received = ReceivePacket(found->second->socket.native_handle(), message);
    if (absl::IsInvalidArgument(received.status())) {
      return Refuse(id, SharingRefusal::kProtocol, std::string(received.status().message()));
    }
    if (!received.ok()) return Remove(id);
    if (*received) OnMessage(id, *found->second, message);
    found = connections_.find(id);
    if (found != connections_.end()) Read(id, *found->second);  // it was not refused
  }

  void OnMessage(LinkDivider::ClientId id, Connection& connection,
                 const v1::ToLinkDaemon& message) {  // with mutex_ held
    const bool known = !connection.application.empty();
    if (message.has_report() && known) return OnReport(id, connection, message.report());
    if (!message.has_hello() || known) {
      return Refuse(id, SharingRefusal::kProtocol, "a hello has to come first, and once");
    }
    absl::Status valid = CheckApplication(message.hello().application());
    valid.Update(CheckWeight(message.hello().weight()));
    const std::vector<std::string> classes(message.hello().classes().begin(), message.hello().classes().end());
    valid.Update(CheckClasses(classes));
    if (!valid.ok()) return Refuse(id, SharingRefusal::kProtocol, std::string(valid.message()));
    if (absl::Status bounded = CheckUidWeight(connection.peer.uid, message.hello().weight()); !bounded.ok()) {
      return Refuse(id, SharingRefusal::kUid, std::string(bounded.message()));
    }
    connection.hello_timer.cancel();
    connection.application = message.hello().application();
    connection.weight = message.hello().weight();
    connection.label = metrics_.LabelOf(connection.application);
    for (const std::string& name : classes) connection.class_labels.push_back(metrics_.LabelOfClass(name));
    connection.counters = metrics_.CountersOf(connection.label, connection.class_labels);
    shares_.Join(Now(), id, connection.weight, classes);
    Announce(SharingEvent::Kind::kJoined, connection);
  }

  absl::Status CheckUidWeight(uid_t uid, double weight) const {  // with mutex_ held
    if (!options_.max_uid_weight.has_value()) return absl::OkStatus();
    double others = 0;
    for (const auto& [id, connection] : connections_) {
      if (connection->peer.uid == uid && !connection->application.empty()) others += connection->weight;
    }
    if (others + weight <= *options_.max_uid_weight) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat("weight ", weight, " and ", others,
                                                    " of the other processes of uid ", uid,
                                                    " are more than max_uid_weight, ", *options_.max_uid_weight));
  }

  void OnReport(LinkDivider::ClientId id, Connection& connection, const v1::LinkReport& report) {  // with mutex_ held
    const ShareReport sane = Sanitized(report, shares_.options().budget_bytes);
    // Bytes that the process received before it joined are not counted.
    if (connection.report_sent_ns == 0) {
      connection.state.report.received_bytes = sane.received_bytes;
      connection.state.report.classes = sane.classes;
    }
    connection.report_sent_ns = report.sent_ns();
    std::vector<ShareLease> leases;
    shares_.Report(Now(), id, sane, leases);
    Count(id, connection);
    Deliver(leases);
  }

  void Refuse(LinkDivider::ClientId id, SharingRefusal kind, const std::string& reason) {  // with mutex_ held
    Connection& connection = *connections_.at(id);
    metrics_.CountRefusal(kind);
    v1::FromLinkDaemon message;
    message.mutable_refusal()->set_reason(reason);
    SendPacket(connection.socket.native_handle(), message).IgnoreError();
    Announce(SharingEvent::Kind::kRefused, connection, reason);
    Remove(id);
  }

  void Remove(LinkDivider::ClientId id) {  // with mutex_ held
    const std::unique_ptr<Connection> connection = std::move(connections_.at(id));
    connections_.erase(id);
    if (connection->application.empty()) return;
    Announce(SharingEvent::Kind::kLeft, *connection);
    std::vector<ShareLease> leases;
    shares_.Leave(Now(), id, leases);
    Deliver(leases);
  }

  // A process that does not read misses its lease and receives it again at the next renewal. Until then it uses the
  // previous lease, which LinkDivider still counts.
  void Deliver(const std::vector<ShareLease>& leases) {  // with mutex_ held
    v1::FromLinkDaemon message;                          // keeps its memory from lease to lease
    for (const ShareLease& lease : leases) {
      const auto found = connections_.find(lease.client);
      if (found == connections_.end()) continue;
      Count(lease.client, *found->second);
      Fill(lease, found->second->report_sent_ns, *message.mutable_lease());
      SendPacket(found->second->socket.native_handle(), message).IgnoreError();
    }
    // An event of one process may end the leases of others.
    if (std::exchange(expirations_, shares_.expirations()) != shares_.expirations()) {
      for (const auto& [id, connection] : connections_) Count(id, *connection);
    }
    ReportBreaches();
    if (const TimePoint next = shares_.NextTimer(); next < armed_for_) Arm(next);
  }

  void ReportBreaches() {  // with mutex_ held
    const std::optional<InvariantBreach> breach = shares_.breaches().Take();
    if (!breach.has_value()) return;
    metrics_.CountBreaches(breach->breaches);
    if (options_.on_invariant_breach) options_.on_invariant_breach(*breach);
  }

  void Fill(const ShareLease& lease, int64_t report_sent_ns, v1::LinkLease& message) const {  // with mutex_ held
    message.set_id(lease.id);
    message.set_bytes(lease.bytes);
    message.set_valid_ns(shares_.options().lease_time.count());
    message.set_report_sent_ns(report_sent_ns);
    message.set_link_bytes(shares_.options().budget_bytes);
    message.set_safe_bytes(lease.safe_bytes);
    message.mutable_class_weights()->Assign(lease.class_weights.begin(), lease.class_weights.end());
    message.set_report_pause_ns(shares_.ReportPause().count());
    message.set_by_block(shares_.options().mode == SharingMode::kFifo);
  }

  void Count(LinkDivider::ClientId id, Connection& connection) {  // with mutex_ held
    if (connection.application.empty()) return;
    LinkDivider::ClientState state = shares_.State(id);
    const LinkDivider::ClientState& before = connection.state;
    const auto count = [](prometheus::Counter* counter, int64_t more) {
      if (more > 0) counter->Increment(static_cast<double>(more));
    };
    count(connection.counters.lease_changes, state.lease_changes - before.lease_changes);
    count(connection.counters.expirations, state.expirations - before.expirations);
    count(connection.counters.received_bytes, state.report.received_bytes - before.report.received_bytes);
    const auto& classes = connection.counters.class_received_bytes;
    for (size_t i = 0; i < std::min({classes.size(), state.report.classes.size(), before.report.classes.size()}); ++i) {
      count(classes[i], state.report.classes[i].received_bytes - before.report.classes[i].received_bytes);
    }
    if (state.expirations > before.expirations) Announce(SharingEvent::Kind::kExpired, connection);
    if (before.expired && !state.expired) Announce(SharingEvent::Kind::kReturned, connection);
    connection.state = std::move(state);
  }

  // A timer that fires too early does nothing and is armed again for the next event. Reports therefore seldom move it.
  void Arm(TimePoint time) {  // with mutex_ held
    armed_for_ = time;
    timer_.expires_at(time);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->OnTimer();
    });
  }

  void OnTimer() {
    const std::lock_guard<std::mutex> lock(mutex_);
    armed_for_ = TimePoint::max();
    std::vector<ShareLease> leases;
    shares_.OnTimer(Now(), leases);
    Deliver(leases);
  }

  void Announce(SharingEvent::Kind kind, const Connection& connection, const std::string& reason = "") const {
    if (!options_.on_event) return;
    options_.on_event({.kind = kind,
                       .application = connection.application,
                       .weight = connection.weight,
                       .pid = connection.peer.pid,
                       .uid = connection.peer.uid,
                       .reason = reason});
  }

  boost::asio::io_context& context_;
  const Options options_;
  std::optional<ListeningSocket> listening_;  // none: closed
  stream_descriptor acceptor_;
  boost::asio::steady_timer retry_;
  boost::asio::steady_timer timer_;

  mutable std::mutex mutex_;
  SharingMetrics metrics_;                                                    // guarded by mutex_
  LinkDivider shares_;                                                        // guarded by mutex_
  LinkDivider::ClientId last_id_ = 0;                                         // guarded by mutex_
  std::map<LinkDivider::ClientId, std::unique_ptr<Connection>> connections_;  // guarded by mutex_
  TimePoint armed_for_ = TimePoint::max();                                    // guarded by mutex_
  int64_t expirations_ = 0;                                                   // guarded by mutex_; counted
};

std::vector<prometheus::MetricFamily> LeaseServer::Core::Collect() const {
  struct Sums {
    int64_t processes = 0;
    int64_t lease_bytes = 0;
    int64_t demand_bytes = 0;
    int64_t in_flight_bytes = 0;
  };
  const std::lock_guard<std::mutex> lock(mutex_);
  std::map<std::string, Sums> applications;
  std::map<std::string, int64_t> class_demand_bytes;
  for (const auto& [id, connection] : connections_) {
    if (connection->application.empty()) continue;
    const LinkDivider::ClientState state = shares_.State(id);
    Sums& sums = applications[connection->label];
    ++sums.processes;
    sums.lease_bytes += state.lease_bytes;
    sums.demand_bytes += state.report.demand_bytes;
    sums.in_flight_bytes += state.report.in_flight_bytes;
    for (size_t i = 0; i < connection->class_labels.size(); ++i) {
      const bool known = i < state.report.classes.size();
      class_demand_bytes[connection->class_labels[i]] += known ? state.report.classes[i].demand_bytes : 0;
    }
  }
  const auto family = [&](const char* name, const char* help, int64_t Sums::*field) {
    std::vector<LabelledValue> values;
    for (const auto& [label, sums] : applications) values.emplace_back(label, sums.*field);
    return MakeFamily(prometheus::MetricType::Gauge, name, help, "application", values);
  };
  const auto gauge = [](const char* name, const char* help, int64_t value) {
    return MakeFamily(prometheus::MetricType::Gauge, name, help, static_cast<double>(value));
  };
  std::vector<prometheus::MetricFamily> families{
      gauge("sluice_sharing_budget_bytes", "Bytes that may be in flight towards this host.",
            shares_.options().budget_bytes),
      gauge("sluice_sharing_draining_bytes", "What may still be on the way to processes that are gone.",
            shares_.draining_bytes())};
  if (applications.empty()) return families;
  families.push_back(family("sluice_sharing_processes", "Processes that share the link.", &Sums::processes));
  families.push_back(family("sluice_sharing_lease_bytes", "Bytes that are leased.", &Sums::lease_bytes));
  families.push_back(
      family("sluice_sharing_demand_bytes", "What all calls that have not ended cost.", &Sums::demand_bytes));
  families.push_back(
      family("sluice_sharing_in_flight_bytes", "Bytes in flight, as reported last.", &Sums::in_flight_bytes));
  if (class_demand_bytes.empty()) return families;
  std::vector<LabelledValue> class_values;
  for (const auto& [label, bytes] : class_demand_bytes) class_values.emplace_back(label, bytes);
  families.push_back(MakeFamily(prometheus::MetricType::Gauge, "sluice_sharing_class_demand_bytes",
                                "What the calls of a class of traffic that have not ended cost.", "class",
                                class_values));
  return families;
}

absl::StatusOr<std::unique_ptr<LeaseServer>> LeaseServer::Start(boost::asio::io_context& context, Options options,
                                                                prometheus::Registry& registry) {
  absl::Status valid = CheckSocketPath("socket", options.socket);
  valid.Update(LinkDivider::Validate(options.shares));
  if (!valid.ok()) return valid;
  absl::StatusOr<ListeningSocket> listening =
      ListeningSocket::Open(options.socket, options.socket_mode, options.socket_group, options.passed.get());
  if (!listening.ok()) return listening.status();
  const int acceptor_fd = fcntl(listening->fd(), F_DUPFD_CLOEXEC, 0);
  if (acceptor_fd < 0) return absl::UnavailableError(absl::StrCat("F_DUPFD_CLOEXEC: ", std::strerror(errno)));
  auto core = std::make_shared<Core>(context, *std::move(listening), acceptor_fd, std::move(options), registry);
  boost::asio::post(context, [core] { core->Accept(); });
  return std::unique_ptr<LeaseServer>(new LeaseServer(context, std::move(core)));
}

LeaseServer::LeaseServer(boost::asio::io_context& context, std::shared_ptr<Core> core)
    : context_(context), core_(std::move(core)) {}

LeaseServer::~LeaseServer() {
  std::packaged_task<void()> close([this] { core_->Close(); });
  const std::future<void> closed = close.get_future();
  boost::asio::post(context_, std::move(close));
  closed.wait();
}

std::vector<prometheus::MetricFamily> LeaseServer::Collect() const {
  return core_->Collect();
}

}  // namespace sluice
