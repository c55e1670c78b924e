#include "lib/sharing/lease_client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <mutex>
#include <optional>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <unistd.h>

#include "sluice/v1/link_sharing.pb.h"

#include "absl/strings/str_cat.h"
#include "lib/sharing/link_hello.h"
#include "lib/sharing/packet_socket.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// How often a busy process reports, which bounds the age of a change that is not urgent.
constexpr nanoseconds kBusyPeriod = milliseconds(2);
// Faster changes share one report.
constexpr nanoseconds kMinPeriod = std::chrono::microseconds(500);
// Applies until a lease contains its own duration.
constexpr nanoseconds kTypicalLeaseTime = milliseconds(250);
// At least, so that a lost report does not cost the lease.
constexpr int kReportsPerLease = 4;

constexpr nanoseconds kFirstBackoff = milliseconds(10);
constexpr nanoseconds kMaxBackoff = milliseconds(100);  // shorter than a new daemon waits for all processes
constexpr nanoseconds kRefusedBackoff = std::chrono::seconds(1);

// The safe share, held without a lease, ends after this time and is renewed before. A process that was stopped
// therefore resumes with nothing, because a daemon may have divided the link again. The time is shorter than a new
// daemon waits for this process.
constexpr nanoseconds kSafeTime = milliseconds(200);

// Bounds of a lease: far above any real link, and far from overflow. A shorter lease would keep the thread busy with
// reports.
constexpr int64_t kMaxLinkBytes = int64_t{1} << 60;
constexpr nanoseconds kMinLease = milliseconds(1);
constexpr nanoseconds kMaxLease = std::chrono::hours(1);

// Another process wrote the lease. `bytes` above `link_bytes` and any `safe_bytes` are not errors: the caller clamps
// them.
absl::Status CheckLease(const v1::LinkLease& lease, size_t classes, TimePoint now) {
  const auto check = [](absl::string_view field, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a lease of the daemon: ", field, " is ", value, "; it must be ", least, " to ", most));
  };
  absl::Status status = check("link_bytes", lease.link_bytes(), 1, kMaxLinkBytes);
  status.Update(check("bytes", lease.bytes(), 0, kMaxLinkBytes));
  status.Update(check("valid_ns", lease.valid_ns(), kMinLease.count(), kMaxLease.count()));
  for (const double weight : lease.class_weights()) {
    if (weight > 0 && std::isfinite(weight)) continue;
    status.Update(absl::InvalidArgumentError(absl::StrCat("a lease of the daemon: a class weight is ", weight)));
  }
  if (lease.class_weights_size() != 0 && static_cast<size_t>(lease.class_weights_size()) != classes) {
    status.Update(absl::InvalidArgumentError(absl::StrCat(
        "a lease of the daemon: there are ", lease.class_weights_size(), " class weights; it must be ", classes)));
  }
  status.Update(check("report_sent_ns", lease.report_sent_ns(), 0, now.time_since_epoch().count()));
  return status;
}

bool Drained(const LinkDemand& reported, const LinkDemand& now) {
  return reported.in_flight_bytes > now.limit_bytes && now.in_flight_bytes <= now.limit_bytes;
}

}  // namespace

bool IsUrgent(const LinkDemand& reported, const LinkDemand& now, bool by_block) {
  const bool turned = (reported.demand_bytes > 0) != (now.demand_bytes > 0);
  const auto same = [](const ClassDemand& a, const ClassDemand& b) {
    return (a.demand_bytes > 0) == (b.demand_bytes > 0);
  };
  const bool classes_turned =
      !std::equal(reported.classes.begin(), reported.classes.end(), now.classes.begin(), now.classes.end(), same);
  const bool lacks = now.need_bytes > now.limit_bytes && now.need_bytes != reported.need_bytes;
  return turned || classes_turned || Drained(reported, now) || lacks ||
         (by_block && reported.oldest_block != now.oldest_block);
}

absl::Status LeaseClient::Validate(const std::string& socket, const std::string& application, double weight) {
  absl::Status status = CheckSocketPath("socket", socket);
  status.Update(CheckApplication(application));
  status.Update(CheckWeight(weight));
  return status;
}

// The connection and its state. There is one for each client. Runs on the IO thread only, except OnDemand and leased.
class LeaseClient::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(boost::asio::io_context& context, Options options)
      : context_(context),
        options_(std::move(options)),
        socket_(context),
        timer_(context),
        link_bytes_(options_.link_bytes),
        safe_bytes_(options_.start_bytes) {
    options_.apply({.bytes = 0, .link_bytes = link_bytes_, .plan_bytes = SafePlanBytes()});
  }

  void OnDemand(const LinkDemand& demand) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (reported_.has_value() && !IsUrgent(*reported_, demand, by_block_)) return;
    // Other processes wait for returned bytes.
    const Poke poke = reported_.has_value() && Drained(*reported_, demand) ? Poke::kAtOnce : Poke::kAfterPause;
    if (poke <= poke_) return;
    poke_ = poke;
    boost::asio::post(context_, [self = shared_from_this(), poke] { self->OnPoke(poke); });
  }

  bool leased() const { return leased_; }

  // Performs all due work and arms the timer for the next.
  void Tick() {
    if (closed_) return;
    const TimePoint now = Now();
    const bool slept = HasSlept(now);
    if (slept || HasLostSafeShare(now)) connect_at_ = now;
    if (!socket_.is_open() && now >= connect_at_) Connect(now);
    // The daemon may have expired this lease and given its bytes to others. Allow it one lease time to send a new
    // lease.
    if ((slept && socket_.is_open()) || HasLostSafeShare(now)) AwaitLease(now);
    if (now >= fall_back_at_) FallBack(now);
    if (socket_.is_open() && now >= report_at_) Report(now);
    if (!socket_.is_open() && HoldsSafeShare(now) && now >= renew_at()) HoldSafeShare(now);
    timer_.expires_at(NextTick(now));
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->Tick();
    });
  }

  void Close() {
    closed_ = true;
    CloseSocket();
    timer_.cancel();
  }

 private:
  enum class Poke { kNone, kAfterPause, kAtOnce };

  static TimePoint Now() { return std::chrono::steady_clock::now(); }

  // Returns whether this thread has not run for long, for example because the process was stopped. Its last lease may
  // then be outdated.
  bool HasSlept(TimePoint now) {
    const nanoseconds since = now - std::exchange(ticked_at_, now);
    return since > (socket_.is_open() ? lease_time_ / 2 : kSafeTime);
  }

  TimePoint NextTick(TimePoint now) const {
    if (socket_.is_open()) return std::min(fall_back_at_, report_at_);
    const TimePoint next = std::min({fall_back_at_, connect_at_, now + kMaxBackoff});
    return HoldsSafeShare(now) ? std::min(next, renew_at()) : next;
  }

  void OnPoke(Poke poke) {
    const nanoseconds pause = poke == Poke::kAtOnce ? kMinPeriod : std::max(kMinPeriod, report_pause_);
    report_at_ = std::min(report_at_, std::max(Now(), reported_at_ + pause));
    Tick();
  }

  void Connect(TimePoint now) {
    const absl::StatusOr<int> fd = ConnectPacketSocket(options_.socket);
    if (!fd.ok()) {
      // Unavailable means that no daemon is running. After another error the daemon may run, and only this process
      // fails to reach it.
      const bool nobody_divides = absl::IsUnavailable(fd.status());
      const TimePoint patience_ends = nobody_divides ? now : now + 2 * lease_time_;
      if (!fell_back_ && !was_leased_) fall_back_at_ = std::min(fall_back_at_, patience_ends);
      if (fell_back_ && nobody_divides) HoldSafeShare(now);
      return ConnectLater(now, fd.status());
    }
    if (absl::Status believed = Believe(*fd); !believed.ok()) {
      close(*fd);
      backoff_ = kRefusedBackoff;
      if (!fell_back_ && !was_leased_) fall_back_at_ = std::min(fall_back_at_, now);
      return ConnectLater(now, believed);
    }
    socket_.assign(*fd);
    v1::ToLinkDaemon message;
    message.mutable_hello()->set_application(options_.application);
    message.mutable_hello()->set_weight(options_.weight);
    for (const std::string& name : options_.classes) message.mutable_hello()->add_classes(name);
    // If this fails, the read below reports the reason.
    SendPacket(socket_.native_handle(), message).IgnoreError();
    report_at_ = now;
    // A daemon that accepts connections may still not respond.
    if (!fell_back_) fall_back_at_ = std::min(fall_back_at_, now + 2 * lease_time_);
    Read();
  }

  absl::Status Believe(int fd) const {
    const absl::StatusOr<PeerCredentials> daemon = PeerOf(fd);
    if (!daemon.ok()) return daemon.status();
    return CheckDaemon(options_.socket, daemon->uid, options_.daemon_uid);
  }

  void ConnectLater(TimePoint now, const absl::Status& why) {
    connect_at_ = now + backoff_;
    backoff_ = std::min(2 * backoff_, kMaxBackoff);
    Announce(why);
  }

  void Read() {
    socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                       [self = shared_from_this()](const boost::system::error_code& error) {
                         if (!error && self->socket_.is_open()) self->OnReadable();
                       });
  }

  void OnReadable() {
    while (socket_.is_open()) {
      v1::FromLinkDaemon message;
      const absl::StatusOr<bool> received = ReceivePacket(socket_.native_handle(), message);
      if (!received.ok()) {
        Lose(received.status());
      } else if (!*received) {
        break;
      } else if (message.has_refusal()) {
        backoff_ = kRefusedBackoff;
        Lose(absl::PermissionDeniedError(message.refusal().reason()));
      } else if (message.has_lease()) {
        OnLease(message.lease());
      }
    }
    if (socket_.is_open()) Read();
    Tick();
  }

  void OnLease(const v1::LinkLease& lease) {
    if (absl::Status sane = CheckLease(lease, options_.classes.size(), Now()); !sane.ok()) return Lose(sane);
    // Count from this process's report, however late the lease is read: the daemon counts from its receipt of that
    // report.
    const TimePoint until = TimePoint(nanoseconds(lease.report_sent_ns())) + nanoseconds(lease.valid_ns());
    const int64_t before_bytes = std::exchange(lease_bytes_, std::min(lease.bytes(), lease.link_bytes()));
    lease_time_ = nanoseconds(lease.valid_ns());
    report_pause_ = std::clamp(nanoseconds(lease.report_pause_ns()), nanoseconds(0), lease_time_ / kReportsPerLease);
    acknowledged_ = lease.id();
    link_bytes_ = lease.link_bytes();
    safe_bytes_ = std::clamp<int64_t>(lease.safe_bytes(), 1, link_bytes_);
    options_.apply({.bytes = lease_bytes_,
                    .until = until,
                    .link_bytes = link_bytes_,
                    .plan_bytes = link_bytes_,
                    .may_exceed = lease_bytes_ == link_bytes_,
                    .class_weights = {lease.class_weights().begin(), lease.class_weights().end()}});
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      by_block_ = lease.by_block();
    }
    // If the daemon hangs, all leases have ended by then. This lease may have waited in the socket for a long time.
    fall_back_at_ = std::max(until, Now()) + lease_time_;
    fell_back_ = false;
    was_leased_ = true;
    backoff_ = kFirstBackoff;
    // Report at once, because other processes wait for the returned bytes.
    if (lease_bytes_ < before_bytes || !leased_) report_at_ = TimePoint::min();
    leased_ = true;
    Announce(absl::OkStatus());
  }

  // Other processes may use their leases for one more lease time. Until then this process uses at most the safe share,
  // and at most its own last limit.
  void Lose(const absl::Status& why) {
    CloseSocket();
    const TimePoint now = Now();
    if (leased_.exchange(false)) {
      lease_bytes_ = std::min(options_.demand().limit_bytes, safe_bytes_);
      HoldSafeShare(now);
      fall_back_at_ = now + lease_time_;
    } else if (!was_leased_ && !fell_back_) {
      fall_back_at_ = now;
    }
    acknowledged_ = 0;
    ConnectLater(now, why);
  }

  // Without a daemon every process uses its safe share, and these shares together fit the budget. A process must make
  // progress with its share, so a response that is larger than the share is sent alone.
  void FallBack(TimePoint now) {
    fall_back_at_ = TimePoint::max();
    fell_back_ = true;
    leased_ = false;
    lease_bytes_ = safe_bytes_;
    HoldSafeShare(now);
    report_at_ = TimePoint::min();  // a daemon that runs after all must receive the demand
    if (socket_.is_open()) Announce(absl::DeadlineExceededError("the daemon does not answer"));
  }

  // If a connected daemon does not respond, it must receive a report before the share ends there, too.
  void HoldSafeShare(TimePoint now) {
    safe_until_ = now + (socket_.is_open() ? std::min(kSafeTime, lease_time_ / 2) : kSafeTime);
    options_.apply({.bytes = lease_bytes_,
                    .until = safe_until_,
                    .link_bytes = link_bytes_,
                    .plan_bytes = SafePlanBytes(),
                    .may_exceed = fell_back_});
  }

  bool HoldsSafeShare(TimePoint now) const { return !leased_ && lease_bytes_ > 0 && now < safe_until_; }
  bool HasLostSafeShare(TimePoint now) const { return fell_back_ && now >= safe_until_; }
  TimePoint renew_at() const { return safe_until_ - kSafeTime / 2; }

  // Waits one lease time for a lease before the process falls back, or falls back again.
  void AwaitLease(TimePoint now) {
    if (std::exchange(fell_back_, false)) fall_back_at_ = TimePoint::min();
    fall_back_at_ = std::max(fall_back_at_, now + lease_time_);
  }

  // Without a daemon processes do not take turns, so responses must fit the safe share. Two such responses keep the
  // link busy while other processes send, too.
  int64_t SafePlanBytes() const { return std::min(2 * safe_bytes_, link_bytes_); }

  void Report(TimePoint now) {
    if (HoldsSafeShare(now)) HoldSafeShare(now);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      poke_ = Poke::kNone;
      reported_.reset();  // later changes may be missing in this report
    }
    const LinkDemand demand = options_.demand();
    v1::ToLinkDaemon message;
    Fill(demand, now, *message.mutable_report());
    const bool sent = SendPacket(socket_.native_handle(), message).ok();
    const bool busy = demand.demand_bytes > 0 || demand.in_flight_bytes > 0;
    reported_at_ = now;
    nanoseconds period = lease_time_ / kReportsPerLease;
    if (busy || !sent) period = std::min(period, std::max(kBusyPeriod, report_pause_));
    if (HoldsSafeShare(now)) period = std::min(period, kSafeTime / kReportsPerLease);
    report_at_ = now + period;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (sent && poke_ == Poke::kNone) reported_ = demand;
  }

  void Fill(const LinkDemand& demand, TimePoint now, v1::LinkReport& report) const {
    report.set_sent_ns(now.time_since_epoch().count());
    report.set_acknowledged(acknowledged_);
    report.set_limit_bytes(demand.limit_bytes);
    report.set_demand_bytes(demand.demand_bytes);
    report.set_in_flight_bytes(demand.in_flight_bytes);
    report.set_need_bytes(demand.need_bytes);
    report.set_received_bytes(demand.received_bytes);
    report.set_oldest_block(demand.oldest_block);
    if (demand.oldest_block != 0) {
      report.set_oldest_block_age_ns(std::max(now - demand.oldest_since, TimePoint::duration::zero()).count());
    }
    for (const ClassDemand& of : demand.classes) {
      v1::LinkClass& to = *report.add_classes();
      to.set_weight(of.weight);
      to.set_demand_bytes(of.demand_bytes);
      to.set_received_bytes(of.received_bytes);
    }
  }

  void CloseSocket() {
    boost::system::error_code ignored;
    if (socket_.is_open()) socket_.close(ignored);
  }

  void Announce(const absl::Status& state) {
    if (closed_ || announced_ == state) return;
    announced_ = state;
    if (options_.on_state) options_.on_state(state);
  }

  boost::asio::io_context& context_;
  const Options options_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer timer_;
  bool closed_ = false;
  std::optional<absl::Status> announced_;

  // Values from the last lease.
  int64_t link_bytes_;
  int64_t safe_bytes_;
  int64_t lease_bytes_ = 0;
  uint64_t acknowledged_ = 0;
  nanoseconds lease_time_ = kTypicalLeaseTime;
  nanoseconds report_pause_{0};
  std::atomic<bool> leased_ = false;
  bool was_leased_ = false;
  bool fell_back_ = false;

  TimePoint ticked_at_ = Now();
  TimePoint safe_until_ = TimePoint::min();
  TimePoint connect_at_ = TimePoint::min();
  nanoseconds backoff_ = kFirstBackoff;
  TimePoint report_at_ = TimePoint::max();
  TimePoint reported_at_ = TimePoint();
  TimePoint fall_back_at_ = TimePoint::max();

  std::mutex mutex_;
  Poke poke_ = Poke::kNone;             // guarded by mutex_
  bool by_block_ = false;               // guarded by mutex_
  std::optional<LinkDemand> reported_;  // guarded by mutex_
};

LeaseClient::LeaseClient(boost::asio::io_context& context, Options options)
    : context_(context), session_(std::make_shared<Session>(context, std::move(options))) {
  boost::asio::post(context_, [session = session_] { session->Tick(); });
}

LeaseClient::~LeaseClient() {
  std::packaged_task<void()> close([this] { session_->Close(); });
  const std::future<void> closed = close.get_future();
  boost::asio::post(context_, std::move(close));
  closed.wait();
}

void LeaseClient::OnDemand(const LinkDemand& demand) {
  session_->OnDemand(demand);
}

bool LeaseClient::leased() const {
  return session_->leased();
}

}  // namespace sluice
