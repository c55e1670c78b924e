#include "lib/fan_out/fan_out_core.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr double kFirstHedges = 8;   // before there is a history to take a share of
constexpr double kMostHedges = 256;  // that a long quiet time can save up

}  // namespace

FanOutCore::FanOutCore(std::shared_ptr<Link> link, WorkerChannels channels)
    : link_(std::move(link)),
      channels_(std::move(channels)),
      hedges_allowed_(kFirstHedges),
      keeper_(link_->driver(), channels_) {}

FanOutCore::~FanOutCore() {
  Close();
}

std::vector<size_t> FanOutCore::Connect(absl::Duration timeout) {
  std::vector<size_t> unconnected = channels_.Connect(timeout);
  keeper_.KeepAll();
  return unconnected;
}

void FanOutCore::Close() {
  std::vector<std::weak_ptr<CallGroup>> under_way;
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    for (const auto& [id, group] : groups_) under_way.push_back(group);
  }
  for (const std::weak_ptr<CallGroup>& weak : under_way) {
    if (auto group = weak.lock()) group->Cancel();
  }
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &FanOutCore::Idle));
}

absl::StatusOr<std::shared_ptr<CallGroup>> FanOutCore::StartGroup(std::vector<GroupCall> calls, TimePoint deadline,
                                                                  CallGroup::Handlers handlers) {
  uint64_t id = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (closing_) return absl::CancelledError("its owner is being destroyed");
    id = next_group_++;
    groups_[id];
  }
  // The group holds its handlers, so it counts until nobody holds it: the thread that cancels it may still be in the
  // link when its last call has ended.
  const std::shared_ptr<void> under_way(nullptr, [this, id](void*) { OnGroupGone(id); });
  handlers.on_end = [under_way, on_end = std::move(handlers.on_end)] { on_end(); };
  auto group = CallGroup::Start(link(), std::move(calls), deadline, std::move(handlers));
  if (!group.ok()) return group;
  bool closing = false;
  {
    absl::MutexLock lock(&mutex_);
    closing = closing_;
    groups_[id] = *group;
  }
  if (closing) (*group)->Cancel();
  return group;
}

bool FanOutCore::closing() const {
  absl::MutexLock lock(&mutex_);
  return closing_;
}

void FanOutCore::OnGroupGone(uint64_t id) {
  absl::MutexLock lock(&mutex_);
  groups_.erase(id);
}

std::shared_ptr<MethodHistory> FanOutCore::History(const std::string& method) {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<MethodHistory>& history = histories_[method];
  if (!history) history = std::make_shared<MethodHistory>();
  return history;
}

void FanOutCore::AllowHedges(double hedges) {
  absl::MutexLock lock(&mutex_);
  hedges_allowed_ = std::min(hedges_allowed_ + hedges, kMostHedges);
}

bool FanOutCore::TakeHedge() {
  absl::MutexLock lock(&mutex_);
  if (hedges_allowed_ < 1) return false;
  hedges_allowed_ -= 1;
  return true;
}

}  // namespace sluice
