#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include <boost/intrusive/list.hpp>

#include "lib/scheduling/link_schedule.h"

namespace sluice {

// The bytes that the calls and connections of a proxy hold in one direction, and their bound. There are two for each
// proxy: of answers that clients do not take, and of requests that workers do not take. Used on the link's thread only.
class HeldBytes {
 public:
  // What one call or connection holds. It may go at any time, and is counted as 0 before.
  class Holder : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
   public:
    // `release` lets go of as much as it can.
    explicit Holder(std::function<void()> release) : release_(std::move(release)) {}
    int64_t bytes() const { return bytes_; }

   private:
    friend class HeldBytes;

    const std::function<void()> release_;
    int64_t bytes_ = 0;
    TimePoint lessened_;  // when it became less, or more than its share
  };

  // Holders of no more than `max_bytes` / `max_holders`, or 1 KiB where that is more, are never released.
  void SetBound(int64_t max_bytes, size_t max_holders);
  int64_t max_bytes() const { return max_bytes_; }
  int64_t share_bytes() const { return share_bytes_; }

  void Count(Holder& holder, int64_t bytes, TimePoint now);
  // Counts bytes that were asked for: they will be held once they come, if they are not taken at once.
  void CountAsked(int64_t more_bytes) { asked_bytes_ += more_bytes; }

  int64_t bytes() const { return bytes_; }
  // More is held and asked for than the bound.
  bool full() const { return bytes_ + asked_bytes_ > max_bytes_; }
  // Both release holders, those first that have not become less for the longest time. The first one stops when it is
  // not full, or when the rest has become less since `since`; the second one when no more than these bytes are held.
  void ReleaseStuck(TimePoint since);
  void ReleaseAbove(int64_t bytes);

 private:
  void ReleaseFirst();

  int64_t max_bytes_ = 0;
  int64_t share_bytes_ = 0;
  int64_t bytes_ = 0;
  int64_t asked_bytes_ = 0;
  // Those that hold more than their share, by lessened_.
  boost::intrusive::list<Holder, boost::intrusive::constant_time_size<false>> holders_;
};

}  // namespace sluice
