#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "sluice/schedule.h"
#include "sluice/time_point.h"

#include "lib/scheduling/budget.h"
#include "lib/scheduling/call_table.h"

namespace sluice {

// The minimum number of bytes of the port buffer that the headers of a ready response take. They come in a packet of
// their own, of about 150 bytes from gRPC 1.51. If the buffer counts packets, it is a full frame.
inline constexpr int64_t kReadyHeaderBytes = 192;

// For grants: the calls whose requests are out and whose responses are not ready, by age, and the room that is kept for
// their headers. A straggler has been out for eight drain times. After a stall timeout a call is hung, and no room is
// kept for it: few of many hung calls end within one drain time. There is one for each schedule. Not thread-safe.
class SentCalls {
 public:
  SentCalls(const ScheduleOptions& options, const Budget& budget);  // which must outlive it

  void SetProfile(const LinkProfile& profile);
  void OnBudgetChanged();  // call it after each change of the budget or of its profile

  void Add(Call& call, TimePoint now);  // the request leaves now
  void Remove(Call& call);              // the response is ready, or the call is over

  // Marks a call in flight as silent, which means that no bytes of it are expected. It was granted early and is not
  // ready, it is a stream between two messages, or it waits for its trailers. Like a straggler it may send headers at
  // any moment.
  void SetSilent(Call& call, bool silent);

  // Marks the calls that are out for eight drain times as stragglers, and drops the room of hung calls. Calls that take
  // seconds, such as long polls, therefore stop no others. Rejected: twice the mean time to ready, since one quick
  // method then makes stragglers of all calls of a slow one.
  bool MarkStragglers(TimePoint now);  // returns whether young calls became stragglers
  TimePoint NextStraggler() const;     // TimePoint::max() if there is none

  // Returns the oldest young call of the class that may be granted before it is ready, or null.
  Call* first_early(size_t traffic_class) {
    return classes_[traffic_class].early.empty() ? nullptr : &classes_[traffic_class].early.front();
  }
  const ClassBits& early_classes() const { return early_classes_; }  // for which first_early is not null
  void KeepFromEarly(Call& call);  // the call must be young; it is granted only once it is ready

  int64_t size() const { return size_; }  // including stragglers
  int64_t stragglers() const { return stragglers_; }
  int64_t young() const { return size_ - stragglers_; }
  int64_t silent() const { return silent_; }
  int64_t young(size_t traffic_class) const { return classes_[traffic_class].young_calls; }
  // The sum of the expected sizes of young calls; bytes, not cost.
  int64_t expected_bytes() const { return expected_bytes_; }
  int64_t expected_bytes(size_t traffic_class) const { return classes_[traffic_class].expected_bytes; }

  // The room for the headers of one response; for the large headers of young and silent calls, in addition to the usual
  // room; and for the headers of stragglers and silent calls.
  int64_t usual_header_bytes() const { return usual_header_bytes_; }
  int64_t large_header_bytes() const { return large_header_bytes_; }
  int64_t silent_header_bytes() const { return silent_header_bytes_; }
  // Returns the room beyond the usual one for the headers of the next response of a worker, by its last ones; 0 if they
  // take less than twice the usual room. Metadata of some KB, or an error with details, takes it, and flow control does
  // not hold headers back.
  int64_t LargeHeaderBytes(const QueuedWorker& worker) const;
  // Returns whether the worker may be asked. Large headers take at most a third of the budget together, beyond the
  // usual room, so a worker with large headers waits for others of its kind, and no other worker waits. Always true for
  // unknown workers, whose calls cannot be told apart.
  bool HeadersFit(const QueuedWorker& worker) const;

  // Records that a response was ready this long after its request.
  void ObserveReady(std::chrono::nanoseconds ready_after);
  // Returns whether responses are ready soon after their requests: within two round trips, or within the time in which
  // the link drains the budget. Returns false before the first response. This is a guess by the mean of about the last
  // hundred responses: it decides only whether bytes come early.
  bool ReadyAtOnce() const;

 private:
  using EarlyCalls =
      boost::intrusive::list<Call, boost::intrusive::base_hook<EarlyHook>, boost::intrusive::constant_time_size<false>>;
  struct ClassCalls {
    EarlyCalls early;  // the young calls that may be granted early
    int64_t young_calls = 0;
    int64_t expected_bytes = 0;
  };

  void CountYoung(Call& call, int64_t sign);
  void DropRoom(Call& straggler);

  using CallsByAge =
      boost::intrusive::list<Call, boost::intrusive::base_hook<SentHook>, boost::intrusive::constant_time_size<false>>;

  // In the order in which they were sent.
  CallsByAge young_;
  CallsByAge straggling_;  // without hung calls
  const Budget& budget_;
  std::vector<ClassCalls> classes_;
  ClassBits early_classes_;
  int64_t size_ = 0;
  int64_t stragglers_ = 0;
  int64_t silent_ = 0;
  int64_t large_header_bytes_ = 0;
  int64_t silent_header_bytes_ = 0;
  int64_t expected_bytes_ = 0;

  LinkProfile profile_;
  int64_t usual_header_bytes_ = 0;
  std::chrono::nanoseconds straggle_after_{0};
  const std::chrono::nanoseconds hung_after_;
  double ready_after_ns_ = -1;  // mean; below 0 before the first response
};

}  // namespace sluice
