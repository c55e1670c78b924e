#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include <boost/intrusive/list.hpp>

#include "lib/scheduling/link_schedule.h"

namespace sluice {

// The bytes that the calls and connections of a proxy hold in one direction, and their bound. There are two for each
// proxy: one for responses that clients have not read, and one for requests that workers have not read. Used on the
// link's thread only.
class HeldBytes {
 public:
  // The bytes that one call or connection holds. It may be destroyed at any time, after its bytes are counted as 0.
  class Holder : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
   public:
    // `release` drops all of its bytes that it can drop.
    explicit Holder(std::function<void()> release) : release_(std::move(release)) {}
    int64_t bytes() const { return bytes_; }

   private:
    friend class HeldBytes;

    const std::function<void()> release_;
    int64_t bytes_ = 0;
    TimePoint lessened_;  // when the bytes decreased, or exceeded the share
  };

  // `on_counted` follows each change of the held bytes; null: none.
  explicit HeldBytes(std::function<void()> on_counted = nullptr) : on_counted_(std::move(on_counted)) {}

  // Holders of at most max(`max_bytes` / `max_holders`, 1 KiB) are never released.
  void SetBound(int64_t max_bytes, size_t max_holders);
  int64_t max_bytes() const { return max_bytes_; }
  int64_t share_bytes() const { return share_bytes_; }

  void Count(Holder& holder, int64_t bytes, TimePoint now);
  // Counts requested bytes: they will be held after they arrive, unless they are read at once.
  void CountAsked(int64_t more_bytes) { asked_bytes_ += more_bytes; }

  int64_t bytes() const { return bytes_; }
  // Whether the held and the requested bytes exceed the bound.
  bool full() const { return bytes_ + asked_bytes_ > max_bytes_; }
  // Both release holders, starting with the holder whose bytes have not decreased for the longest time. ReleaseStuck
  // stops when full() is false, or when the bytes of all other holders have decreased since `since`. ReleaseAbove stops
  // when at most `bytes` are held.
  void ReleaseStuck(TimePoint since);
  void ReleaseAbove(int64_t bytes);

 private:
  void ReleaseFirst();

  const std::function<void()> on_counted_;
  int64_t max_bytes_ = 0;
  int64_t share_bytes_ = 0;
  int64_t bytes_ = 0;
  int64_t asked_bytes_ = 0;
  // Holders of more than their share, ordered by lessened_.
  boost::intrusive::list<Holder, boost::intrusive::constant_time_size<false>> holders_;
};

}  // namespace sluice
