#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "sluice/time_point.h"

#include "lib/scheduling/call_table.h"

namespace sluice {

// For grants: the calls whose requests are out and whose responses are not ready, by age. A straggler is out for longer
// than straggle_after. There is one for each schedule. Not thread-safe.
class SentCalls {
 public:
  explicit SentCalls(size_t classes) : early_(classes), young_calls_(classes) {}

  void Add(Call& call, TimePoint now);  // the request leaves now
  void Remove(Call& call);              // the response is ready, or the call is over

  // Marks a call in flight as silent, which means that no bytes of it are expected. It was granted early and is not
  // ready, it is a stream between two messages, or it waits for its trailers. Like a straggler it may send headers at
  // any moment.
  void SetSilent(Call& call, bool silent);

  // Marks the calls that are out for straggle_after or longer as stragglers.
  void MarkStragglers(TimePoint now, std::chrono::nanoseconds straggle_after);
  TimePoint NextStraggler(std::chrono::nanoseconds straggle_after) const;  // TimePoint::max() if there is none

  // Returns the oldest young call of the class that may be granted before it is ready, or null.
  Call* first_early(size_t traffic_class) {
    return early_[traffic_class].empty() ? nullptr : &early_[traffic_class].front();
  }
  bool any_early() const {
    return std::any_of(early_.begin(), early_.end(), [](const EarlyCalls& calls) { return !calls.empty(); });
  }
  void KeepFromEarly(Call& call);  // the call must be young; it is granted only once it is ready

  int64_t size() const { return size_; }  // including stragglers
  int64_t stragglers() const { return stragglers_; }
  int64_t young() const { return size_ - stragglers_; }
  int64_t young(size_t traffic_class) const { return young_calls_[traffic_class]; }
  int64_t silent() const { return silent_; }

 private:
  using EarlyCalls =
      boost::intrusive::list<Call, boost::intrusive::base_hook<EarlyHook>, boost::intrusive::constant_time_size<false>>;

  // Without stragglers, in the order in which they were sent.
  boost::intrusive::list<Call, boost::intrusive::base_hook<SentHook>, boost::intrusive::constant_time_size<false>>
      young_;
  std::vector<EarlyCalls> early_;     // by class: the young calls that may be granted early
  std::vector<int64_t> young_calls_;  // by class
  int64_t size_ = 0;
  int64_t stragglers_ = 0;
  int64_t silent_ = 0;
};

}  // namespace sluice
