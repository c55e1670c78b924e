#pragma once

#include <chrono>
#include <cstdint>

#include <boost/intrusive/set.hpp>

#include "sluice/schedule.h"
#include "sluice/time_point.h"

#include "lib/scheduling/call_table.h"

namespace sluice {

// Decides when calls with outstanding bytes count as stalled. There is one for each schedule. Not thread-safe.
class StallTimers {
 public:
  explicit StallTimers(const ScheduleOptions& options);

  void SetProfile(const LinkProfile& profile);  // for timers that start from now on

  // Starts or restarts the timer of a charged call. `budget_bytes` may be in flight together with the call.
  void Start(Call& call, TimePoint now, int64_t budget_bytes);
  void Stop(Call& call);  // does nothing if the timer does not run
  static bool Runs(const Call& call) { return call.StallHook::is_linked(); }

  Call* FirstStalled(TimePoint now);  // null if there is none
  TimePoint next() const { return calls_.empty() ? TimePoint::max() : calls_.begin()->stalls_at; }

 private:
  struct TimeKey {
    using type = TimePoint;
    type operator()(const Call& call) const { return call.stalls_at; }
  };

  std::chrono::nanoseconds TransferTime(const Call& call, int64_t budget_bytes) const;

  const std::chrono::nanoseconds timeout_;
  double rtt_ns_ = 0;
  double byte_ns_ = 0;
  boost::intrusive::multiset<Call, boost::intrusive::base_hook<StallHook>, boost::intrusive::key_of_value<TimeKey>,
                             boost::intrusive::constant_time_size<false>>
      calls_;
};

}  // namespace sluice
