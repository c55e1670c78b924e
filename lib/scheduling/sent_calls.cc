#include "lib/scheduling/sent_calls.h"

#include <cmath>

#include "sluice/plan.h"

#include "absl/time/time.h"
#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/queued_worker.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {
namespace {

constexpr int kStraggleDrains = 8;
constexpr double kMeanWeight = 1.0 / 64;

}  // namespace

SentCalls::SentCalls(const ScheduleOptions& options, const Budget& budget)
    : budget_(budget), classes_(options.class_count()), hung_after_(absl::ToChronoNanoseconds(options.stall_timeout)) {
  SetProfile(options.profile);
}

void SentCalls::SetProfile(const LinkProfile& profile) {
  profile_ = profile;
  usual_header_bytes_ = profile.buffer_packets > 0 ? BufferCostBytes(profile, kReadyHeaderBytes) : kReadyHeaderBytes;
  OnBudgetChanged();
}

void SentCalls::OnBudgetChanged() {
  // Use absl::Duration, which saturates: the drain time of an unscheduled link is near the maximum.
  straggle_after_ = absl::ToChronoNanoseconds(kStraggleDrains * absl::FromChrono(budget_.drain_time()));
}

void SentCalls::Add(Call& call, TimePoint now) {
  call.progress.sent_at = now;
  call.progress.straggles = false;
  young_.push_back(call);
  classes_[call.block->traffic_class].early.push_back(call);
  early_classes_.set(call.block->traffic_class);
  CountYoung(call, 1);
  ++size_;
}

void SentCalls::Remove(Call& call) {
  if (call.progress.straggles) {
    --stragglers_;
    DropRoom(call);
  } else {
    young_.erase(young_.iterator_to(call));
    CountYoung(call, -1);
    KeepFromEarly(call);
  }
  --size_;
}

bool SentCalls::MarkStragglers(TimePoint now) {
  const int64_t stragglers_before = stragglers_;
  while (!young_.empty() && NextStraggler() <= now) {
    Call& call = young_.front();
    KeepFromEarly(call);
    young_.pop_front();
    CountYoung(call, -1);
    call.progress.straggles = true;
    ++stragglers_;
    straggling_.push_back(call);
    silent_header_bytes_ += call.header_bytes;
  }
  while (!straggling_.empty() && SaturatingAdd(straggling_.front().progress.sent_at, hung_after_) <= now) {
    DropRoom(straggling_.front());
  }
  return stragglers_ > stragglers_before;
}

void SentCalls::DropRoom(Call& straggler) {
  if (!straggler.SentHook::is_linked()) return;
  straggling_.erase(straggling_.iterator_to(straggler));
  silent_header_bytes_ -= straggler.header_bytes;
}

void SentCalls::CountYoung(Call& call, int64_t sign) {
  ClassCalls& of = classes_[call.block->traffic_class];
  of.young_calls += sign;
  of.expected_bytes += sign * call.expected_bytes;
  expected_bytes_ += sign * call.expected_bytes;
  large_header_bytes_ += sign * call.large_header_bytes;
}

void SentCalls::KeepFromEarly(Call& call) {
  if (!call.EarlyHook::is_linked()) return;
  EarlyCalls& early = classes_[call.block->traffic_class].early;
  early.erase(early.iterator_to(call));
  early_classes_[call.block->traffic_class] = !early.empty();
}

void SentCalls::SetSilent(Call& call, bool silent) {
  if (call.progress.silent == silent) return;
  call.progress.silent = silent;
  silent_ += silent ? 1 : -1;
  silent_header_bytes_ += silent ? call.header_bytes : -call.header_bytes;
  large_header_bytes_ += silent ? call.large_header_bytes : -call.large_header_bytes;
}

TimePoint SentCalls::NextStraggler() const {
  return young_.empty() ? TimePoint::max() : SaturatingAdd(young_.front().progress.sent_at, straggle_after_);
}

int64_t SentCalls::LargeHeaderBytes(const QueuedWorker& worker) const {
  if (worker.header_wire_bytes < 1) return 0;
  const int64_t cost_bytes = BufferCostBytes(profile_, static_cast<int64_t>(std::ceil(worker.header_wire_bytes)));
  if (cost_bytes <= 2 * usual_header_bytes_) return 0;
  return std::min(cost_bytes - usual_header_bytes_, budget_.bytes() / 3);
}

bool SentCalls::HeadersFit(const QueuedWorker& worker) const {
  const int64_t large_bytes = worker.bounded ? LargeHeaderBytes(worker) : 0;
  return large_bytes == 0 || large_header_bytes_ == 0 || large_header_bytes_ + large_bytes <= budget_.bytes() / 3;
}

void SentCalls::ObserveReady(std::chrono::nanoseconds ready_after) {
  const auto ns = static_cast<double>(ready_after.count());
  ready_after_ns_ = ready_after_ns_ < 0 ? ns : ready_after_ns_ + kMeanWeight * (ns - ready_after_ns_);
}

bool SentCalls::ReadyAtOnce() const {
  const double rtt_ns = absl::ToDoubleNanoseconds(profile_.propagation_rtt);
  const double drains_after_ns = static_cast<double>(budget_.bytes()) / (profile_.capacity_bytes_per_second / 1e9);
  return ready_after_ns_ >= 0 && ready_after_ns_ <= std::max(2 * rtt_ns, drains_after_ns);
}

}  // namespace sluice
