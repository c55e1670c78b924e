#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"

namespace sluice {

// Divides one limit of a proxy, such as limits.calls, among the groups of its clients, by weight. A group may use all
// of it while no other needs it. Once the limit is reached, the group with the most per weight gives way to a group
// with less, or is refused. Therefore a group that has less than its fair share is never refused, and never gives way.
// There is one for each limit of a proxy. It has no clock, socket or lock. Not thread-safe.
//
// Rejected: a fixed part of the limit for each group, which a single busy group could not use. Rejected: to keep a part
// free for new groups, as switches do with dynamic thresholds: what is free is of no use, and a group that needs more
// than the free part at once must wait all the same.
class FairShares {
 public:
  static constexpr int64_t kNoCap = std::numeric_limits<int64_t>::max();

  struct Verdict {
    enum class Kind {
      kYes,
      kCap,       // it would exceed the cap of the group
      kShare,     // the limit is reached, and the group has the most per weight
      kGivesWay,  // the limit is reached, and the group `from` must return as much first
    };
    Kind kind = Kind::kYes;
    size_t from = 0;
  };

  void SetLimit(int64_t limit) { limit_ = limit; }
  // Groups are numbered by their owner. A group that was not set has weight 1 and no cap.
  void SetGroup(size_t group, double weight, int64_t cap);
  // Counts what a group takes, or returns if `change` is negative.
  void Count(size_t group, int64_t change);

  // Whether the group may take `more`. Count follows if it does.
  Verdict Ask(size_t group, int64_t more = 1) const;
  // Whether another group has more per weight.
  bool OtherHasMore(size_t group) const;
  // The group with the most per weight among the groups for which `can_give` is true; nothing: there is none.
  std::optional<size_t> Most(absl::FunctionRef<bool(size_t group)> can_give) const;

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_; }
  int64_t used(size_t group) const { return group < groups_.size() ? groups_[group].used : 0; }
  bool above_cap(size_t group) const { return group < groups_.size() && groups_[group].used > groups_[group].cap; }
  // The part of the limit that a group has at least, if it and the groups that use something now need more.
  int64_t ShareOf(size_t group) const;

 private:
  struct Group {
    double weight = 1;
    int64_t cap = kNoCap;
    int64_t used = 0;
  };

  double PerWeight(size_t group, int64_t more = 0) const;
  Group& At(size_t group);

  int64_t limit_ = 0;
  int64_t used_ = 0;
  std::vector<Group> groups_;
};

}  // namespace sluice
