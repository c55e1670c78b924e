#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include <boost/intrusive/list.hpp>

#include "lib/proxy/fair_shares.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {

// The bytes that the calls and connections of a proxy hold in one direction, and their bound, which the groups of
// clients share by weight. There are two for each proxy: one for responses that clients have not read, and one for
// requests that workers have not read. Used on the link's thread only.
class HeldBytes {
 public:
  // The bytes that one call or connection holds. It may be destroyed at any time, after its bytes are counted as 0.
  class Holder : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
   public:
    // `release` drops all of its bytes that it can drop.
    explicit Holder(std::function<void()> release, size_t group = 0) : release_(std::move(release)), group_(group) {}
    int64_t bytes() const { return bytes_; }

   private:
    friend class HeldBytes;

    const std::function<void()> release_;
    size_t group_;
    int64_t bytes_ = 0;
    TimePoint lessened_;  // when the bytes decreased, or exceeded the share
  };

  // `on_counted` follows each change of the held bytes; null: none.
  explicit HeldBytes(std::function<void()> on_counted = nullptr) : on_counted_(std::move(on_counted)) {}

  // Holders of at most max(`max_bytes` / `max_holders`, 1 KiB) are never released.
  void SetBound(int64_t max_bytes, size_t max_holders);
  int64_t max_bytes() const { return shares_.limit(); }
  int64_t share_bytes() const { return share_bytes_; }
  // As FairShares::SetGroup.
  void SetGroup(size_t group, double weight, int64_t max_bytes);
  int64_t ShareOf(size_t group) const { return shares_.ShareOf(group); }

  void Count(Holder& holder, int64_t bytes, TimePoint now);
  void Move(Holder& holder, size_t group, TimePoint now);  // with its bytes
  // Counts requested bytes: they will be held after they arrive, unless they are read at once.
  void CountAsked(size_t group, int64_t more_bytes) { Change(group, more_bytes); }

  int64_t bytes() const { return bytes_; }
  int64_t bytes_of(size_t group) const { return shares_.used(group); }  // with the requested bytes
  // Whether the held and the requested bytes exceed the bound of all groups, or of any.
  bool full() const { return full_of_all() || groups_above_ > 0; }
  // Whether this group must hold no more: it exceeds its bound, or the bound of all groups is exceeded, and no other
  // group has more for its weight.
  bool full(size_t group) const { return shares_.above_cap(group) || (full_of_all() && !shares_.OtherHasMore(group)); }
  // Both release holders, starting with the group that has the most for its weight, and in it with the holder whose
  // bytes have not decreased for the longest time. ReleaseStuck stops when full() is false, or when the bytes of all
  // other holders have decreased since `since`. ReleaseAbove stops when at most `bytes` are held.
  void ReleaseStuck(TimePoint since);
  void ReleaseAbove(int64_t bytes);

 private:
  using Holders = boost::intrusive::list<Holder, boost::intrusive::constant_time_size<false>>;

  bool full_of_all() const { return shares_.used() > shares_.limit(); }
  Holders& HoldersOf(size_t group);
  void Change(size_t group, int64_t more_bytes);
  void ReleaseFirst(size_t group);

  const std::function<void()> on_counted_;
  int64_t share_bytes_ = 0;
  int64_t bytes_ = 0;
  FairShares shares_;        // of the held and the requested bytes
  size_t groups_above_ = 0;  // their own bound
  // By group: holders of more than their share, ordered by lessened_.
  std::deque<Holders> holders_;
};

}  // namespace sluice
