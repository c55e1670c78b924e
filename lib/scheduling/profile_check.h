#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "sluice/link_profile.h"
#include "sluice/schedule.h"
#include "sluice/time_point.h"

#include "absl/time/time.h"
#include "lib/scheduling/budget_control.h"

namespace sluice {

// Compares the profile of a link with what the link does: its capacity with the bytes that came while calls waited for
// the budget, and its round trip with the smallest one of TCP. No decision depends on it. There is one for each link.
// Not thread-safe. It reads no clock.
//
// A window is half a second in which calls waited nearly all the time. The measured capacity is the highest rate that
// two windows in a row had, within the last ten to twenty minutes of looks. It is a lower bound: the budget and the
// workers may leave more of the link idle.
class ProfileCheck {
 public:
  // Returns the facts that are contradicted from now on: capacity after ten windows, and the round trip after ten
  // observations. Each is returned once for each profile. `budget_bytes` is the budget of the whole link; 0: this
  // process has only a lease of it.
  std::vector<ProfileMismatch> Observe(const LinkProfile& profile, const BudgetObservation& seen, int64_t budget_bytes,
                                       std::optional<absl::Duration> min_rtt);

  double capacity_bytes_per_second() const { return std::max(best_.rate, best_before_.rate); }  // 0: unknown
  absl::Duration rtt() const { return std::min(best_.rtt, best_before_.rtt); }                  // infinite: unknown
  bool contradicts_capacity() const { return capacity_.contradicted; }
  bool contradicts_rtt() const { return rtt_.contradicted; }

 private:
  struct Fact {
    bool contradicted = false;
    int others = 0;  // consecutive judgements that differ from `contradicted`
    bool reported = false;
  };
  struct Window {
    std::chrono::nanoseconds time{0};
    int64_t bytes = 0;
    bool lost = false;  // packets
  };

  struct Best {
    double rate = 0;
    absl::Duration rtt = absl::InfiniteDuration();
  };

  static bool Judge(Fact& fact, bool contradicts);
  std::optional<double> CloseWindow(const BudgetObservation& seen);
  void StartPeriod(TimePoint now);

  LinkProfile profile_;
  Fact capacity_;
  Fact rtt_;
  Window window_;
  bool lost_in_last_ = false;
  double last_rate_ = 0;  // the rate of the window before this one; 0: there is none just before
  TimePoint best_since_;
  Best best_;         // since best_since_
  Best best_before_;  // in the ten minutes of looks before
};

}  // namespace sluice
