#pragma once

#include <chrono>
#include <cstdint>

#include "sluice/link_profile.h"
#include "sluice/time_point.h"

namespace sluice {

// Spreads grants over time, at nearly the rate of the link, where the path holds more bytes than the port can buffer:
// C·R is above two thirds of the budget. Bytes that are granted at this rate, and take equally long to come, cross the
// port without a queue, so more of them than the budget may be on the way. There is one for each budget. Not
// thread-safe.
//
// The rate is 0.97 C by GCRA (ITU-T I.371), with half of the budget as tolerance. A grant is at most a third of the
// budget, so a sixth remains for bytes that come later than others.
//
// Anchor: in ExpressPass (Cho, Jang and Han, 2017) switches bound the credits of all links to 95 %. Here one receiver
// bounds its own.
class Pacer {
 public:
  // The budgets at one moment.
  struct Budgets {
    int64_t bytes = 0;        // the budget, or the lease
    int64_t link_bytes = 0;   // the whole budget of the link
    int64_t start_bytes = 0;  // that of the options
  };
  // `paced`: ScheduleOptions::paced. The bytes that were granted before keep their time.
  void Set(bool paced, const LinkProfile& profile, const Budgets& budgets);

  void Advance(TimePoint now) { now_ = now; }
  void Take(int64_t cost_bytes);  // records bytes that are granted now

  bool paced() const { return pipe_bytes_ > 0; }
  bool open() const { return !paced() || due_ <= now_; }
  TimePoint opens_at() const { return open() ? TimePoint::max() : due_; }
  // Returns the bytes that may be on the way in addition to the budget: C·R, and at most ten budgets, since the bytes
  // that come late grow with them. They fall with the budget, after losses: to half at three quarters of the first
  // budget, and to none at half of it.
  int64_t pipe_bytes() const { return pipe_bytes_; }

 private:
  std::chrono::nanoseconds TimeOf(int64_t bytes) const;

  int64_t pipe_bytes_ = 0;
  double byte_ns_ = 0;
  std::chrono::nanoseconds tolerance_{0};
  TimePoint now_;
  TimePoint due_;  // when the next bytes may be granted
};

}  // namespace sluice
