#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <unistd.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lib/net/io_thread.h"
#include "lib/sharing/lease_client.h"

namespace sluice {

inline constexpr absl::Duration kPatience = absl::Seconds(30);

// Returns a path for a socket: the framework's folder may exceed the length of a Unix socket's path.
inline std::string SocketPath() {
  const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  return "/tmp/sluice-" + std::to_string(getpid()) + "-" + name.substr(0, 40) + ".sock";
}

// A process on a shared link, whose demand a test sets. Its lease client has its own thread.
class SharingProcess {
 public:
  SharingProcess(const std::string& socket, const std::string& application, double weight = 1,
                 std::optional<uid_t> daemon_uid = std::nullopt) {
    client_ = std::make_unique<LeaseClient>(
        io_thread_.context(), LeaseClient::Options{.socket = socket,
                                                   .application = application,
                                                   .weight = weight,
                                                   .start_bytes = 4000,
                                                   .link_bytes = 32'000,
                                                   .daemon_uid = daemon_uid,
                                                   .demand = [this] { return Demand(); },
                                                   .apply = [this](const BudgetLease& lease) { Apply(lease); },
                                                   .on_state = [this](const absl::Status& state) { SetState(state); }});
  }

  void Want(int64_t demand_bytes, int64_t need_bytes = 1000) {
    LinkDemand demand;
    {
      absl::MutexLock lock(&mutex_);
      demand_.demand_bytes = demand_bytes;
      demand_.need_bytes = demand_bytes > 0 ? need_bytes : 0;
      demand = Now();
    }
    client_->OnDemand(demand);
  }

  void SetInFlight(int64_t in_flight_bytes) {
    LinkDemand demand;
    {
      absl::MutexLock lock(&mutex_);
      demand_.received_bytes += std::max<int64_t>(demand_.in_flight_bytes - in_flight_bytes, 0);
      demand_.in_flight_bytes = in_flight_bytes;
      demand = Now();
    }
    client_->OnDemand(demand);
  }

  // Blocks the thread for `duration`, like a process that is not scheduled.
  void HangFor(std::chrono::nanoseconds duration) {
    absl::Notification begun;
    boost::asio::post(io_thread_.context(), [&begun, duration] {
      begun.Notify();
      absl::Notification never;
      never.WaitForNotificationWithTimeout(absl::FromChrono(duration));
    });
    begun.WaitForNotification();
  }

  // The last applied safe share, and the number of safe shares applied.
  BudgetLease safe_share() const {
    absl::MutexLock lock(&mutex_);
    return safe_share_;
  }
  int64_t safe_shares() const {
    absl::MutexLock lock(&mutex_);
    return safe_shares_;
  }
  TimePoint safe_share_applied_at() const {  // of the first safe share
    absl::MutexLock lock(&mutex_);
    return safe_share_applied_at_;
  }
  int64_t reports() const {
    absl::MutexLock lock(&mutex_);
    return reports_;
  }

  BudgetLease lease() const {
    absl::MutexLock lock(&mutex_);
    return lease_;
  }
  bool leased() const { return client_->leased(); }

  // Returns false if the condition did not become true in time.
  bool Await(const std::function<bool(const BudgetLease&)>& condition) const {
    absl::MutexLock lock(&mutex_);
    const auto holds = [this, &condition]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return condition(lease_); };
    return mutex_.AwaitWithTimeout(absl::Condition(&holds), kPatience);
  }
  bool AwaitBytes(int64_t bytes) const {
    return Await([bytes](const BudgetLease& lease) { return lease.bytes == bytes; });
  }
  bool AwaitState(absl::StatusCode code) const {
    absl::MutexLock lock(&mutex_);
    const auto holds = [this, code]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return announced_ && state_.code() == code; };
    return mutex_.AwaitWithTimeout(absl::Condition(&holds), kPatience);
  }
  absl::Status state() const {
    absl::MutexLock lock(&mutex_);
    return state_;
  }

 private:
  LinkDemand Demand() {
    absl::MutexLock lock(&mutex_);
    ++reports_;
    return Now();
  }
  LinkDemand Now() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    LinkDemand demand = demand_;
    demand.limit_bytes = std::chrono::steady_clock::now() < lease_.until ? lease_.bytes : 0;
    return demand;
  }
  void Apply(const BudgetLease& lease) {
    absl::MutexLock lock(&mutex_);
    lease_ = lease;
    // Leases plan for the whole link.
    if (lease.bytes == 0 || lease.plan_bytes == lease.link_bytes) return;
    safe_share_ = lease;
    if (safe_shares_++ == 0) safe_share_applied_at_ = std::chrono::steady_clock::now();
  }
  void SetState(const absl::Status& state) {
    absl::MutexLock lock(&mutex_);
    announced_ = true;
    state_ = state;
  }

  mutable absl::Mutex mutex_;
  LinkDemand demand_ ABSL_GUARDED_BY(mutex_);
  BudgetLease lease_ ABSL_GUARDED_BY(mutex_);
  BudgetLease safe_share_ ABSL_GUARDED_BY(mutex_);
  int64_t safe_shares_ ABSL_GUARDED_BY(mutex_) = 0;
  TimePoint safe_share_applied_at_ ABSL_GUARDED_BY(mutex_);
  int64_t reports_ ABSL_GUARDED_BY(mutex_) = 0;
  bool announced_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status state_ ABSL_GUARDED_BY(mutex_);
  IoThread io_thread_;
  std::unique_ptr<LeaseClient> client_;
};

}  // namespace sluice
