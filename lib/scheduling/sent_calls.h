#pragma once

#include <chrono>
#include <cstdint>

#include <boost/intrusive/list.hpp>

#include "sluice/link_schedule.h"

#include "lib/scheduling/call_table.h"

namespace sluice {

// Grants: the calls whose requests are out and whose answers are not ready, told apart by age. A straggler is out for
// so long that nobody can tell when it will be ready. One a schedule, not thread-safe.
class SentCalls {
 public:
  void Add(Call& call, TimePoint now);  // its request leaves now
  void Remove(Call& call);              // ready, or over

  // In flight, and nothing is known to come: one that left with its grant and is not ready, or a stream between two
  // messages, or one that waits for its trailers. Like a straggler it may send a header at any moment.
  void SetSilent(Call& call, bool silent);

  // Those that are out for so long, or longer, straggle from now on.
  void MarkStragglers(TimePoint now, std::chrono::nanoseconds straggle_after);
  TimePoint NextStraggler(std::chrono::nanoseconds straggle_after) const;  // TimePoint::max() when there is none

  int64_t size() const { return size_; }  // stragglers included
  int64_t stragglers() const { return stragglers_; }
  int64_t young() const { return size_ - stragglers_; }
  int64_t silent() const { return silent_; }

 private:
  // Not stragglers; first sent, first.
  boost::intrusive::list<Call, boost::intrusive::base_hook<SentHook>, boost::intrusive::constant_time_size<false>>
      young_;
  int64_t size_ = 0;
  int64_t stragglers_ = 0;
  int64_t silent_ = 0;
};

}  // namespace sluice
