#include "lib/proxy/held_bytes.h"

#include <algorithm>
#include <optional>

namespace sluice {
namespace {

constexpr int64_t kMinShareBytes = 1024;

}  // namespace

void HeldBytes::SetBound(int64_t max_bytes, size_t max_holders) {
  shares_.SetLimit(max_bytes);
  share_bytes_ = std::max(max_bytes / static_cast<int64_t>(max_holders), kMinShareBytes);
}

void HeldBytes::SetGroup(size_t group, double weight, int64_t max_bytes) {
  if (shares_.above_cap(group)) --groups_above_;
  shares_.SetGroup(group, weight, max_bytes);
  if (shares_.above_cap(group)) ++groups_above_;
}

HeldBytes::Holders& HeldBytes::HoldersOf(size_t group) {
  while (group >= holders_.size()) holders_.emplace_back();
  return holders_[group];
}

void HeldBytes::Change(size_t group, int64_t more_bytes) {
  const bool above = shares_.above_cap(group);
  shares_.Count(group, more_bytes);
  if (shares_.above_cap(group) == above) return;
  groups_above_ = above ? groups_above_ - 1 : groups_above_ + 1;
}

void HeldBytes::Count(Holder& holder, int64_t bytes, TimePoint now) {
  if (bytes == holder.bytes_) return;
  const int64_t more_bytes = bytes - std::exchange(holder.bytes_, bytes);
  bytes_ += more_bytes;
  Change(holder.group_, more_bytes);
  if (more_bytes < 0) holder.unlink();
  if (bytes > share_bytes_ && !holder.is_linked()) {
    holder.lessened_ = now;
    HoldersOf(holder.group_).push_back(holder);
  }
  if (on_counted_ != nullptr) on_counted_();
}

void HeldBytes::Move(Holder& holder, size_t group, TimePoint now) {
  const int64_t bytes = holder.bytes_;
  Count(holder, 0, now);
  holder.group_ = group;
  Count(holder, bytes, now);
}

void HeldBytes::ReleaseStuck(TimePoint since) {
  while (full()) {
    const std::optional<size_t> group = shares_.Most([&](size_t other) {
      if (other >= holders_.size() || holders_[other].empty() || holders_[other].front().lessened_ > since)
        return false;
      return full_of_all() || shares_.above_cap(other);
    });
    if (!group.has_value()) return;
    ReleaseFirst(*group);
  }
}

void HeldBytes::ReleaseAbove(int64_t bytes) {
  while (bytes_ > bytes) {
    const std::optional<size_t> group =
        shares_.Most([&](size_t other) { return other < holders_.size() && !holders_[other].empty(); });
    if (!group.has_value()) return;
    ReleaseFirst(*group);
  }
}

void HeldBytes::ReleaseFirst(size_t group) {
  Holder& holder = holders_[group].front();
  holders_[group].pop_front();  // release each holder once, even if it keeps its bytes
  holder.release_();
}

}  // namespace sluice
