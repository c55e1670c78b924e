#include "lib/scheduling/grant_window.h"

#include <algorithm>
#include <cmath>

#include "sluice/plan.h"

#include "absl/time/time.h"
#include "lib/scheduling/budget.h"

namespace sluice {
namespace {

constexpr double kMeanWeight = 1.0 / 64;
constexpr int64_t kReserveShare = 3;
constexpr double kStraggleFactor = 2;
constexpr double kMaxStraggleDrains = 8;

}  // namespace

// Before the first response the think time of the workers is unknown, so start from the stall timeout.
GrantWindow::GrantWindow(const ScheduleOptions& options)
    : classes_(options.class_count()), wanted_straggle_after_ns_(absl::ToDoubleNanoseconds(options.stall_timeout)) {
  SetProfile(options.profile, options.paced);
}

void GrantWindow::SetProfile(const LinkProfile& profile, bool paced) {
  paced_ = paced;
  profile_ = profile;
  bytes_per_ns_ = profile.capacity_bytes_per_second / 1e9;
  SetHeaderBytes();
  rtt_ns_ = absl::ToDoubleNanoseconds(profile.propagation_rtt);
  SetBudget(link_bytes_);
}

void GrantWindow::SetBudget(int64_t link_bytes) {
  link_bytes_ = link_bytes;
  drain_time_ = DrainTime(profile_, link_bytes);
  SetStraggleAfter(wanted_straggle_after_ns_);
}

void GrantWindow::SetStraggleAfter(double wanted_ns) {
  wanted_straggle_after_ns_ = wanted_ns;
  const auto drain_ns = static_cast<double>(drain_time_.count());
  constexpr double kMaxNs = 1e18;
  const double bounded_ns = std::clamp(wanted_ns, drain_ns, kMaxStraggleDrains * drain_ns);
  straggle_after_ = std::chrono::nanoseconds(std::llround(std::min(bounded_ns, kMaxNs)));
}

bool GrantWindow::ReadyAtOnce(int64_t budget_bytes) const {
  const double drains_after_ns = static_cast<double>(budget_bytes) / bytes_per_ns_;
  return all_.known && all_.ready_latency_ns <= std::max(2 * rtt_ns_, drains_after_ns);
}

int64_t GrantWindow::Window(const Responses& responses, double share, int64_t budget_bytes, double stock) const {
  const int64_t most_of_all = std::max<int64_t>(budget_bytes / kReserveShare / header_bytes_, 1);
  const auto least = std::min(most_of_all, static_cast<int64_t>(kStock));
  const int64_t most = std::max(static_cast<int64_t>(std::ceil(share * static_cast<double>(most_of_all))), least);
  if (!responses.known) return most;
  // If the path holds more than the budget, one round trip takes one budget.
  const double budget_per_ns = static_cast<double>(budget_bytes) / rtt_ns_;
  const double taken_per_ns = paced_ ? bytes_per_ns_ : std::min(bytes_per_ns_, budget_per_ns);
  const double thinking = std::ceil(share * responses.ready_latency_ns * taken_per_ns / responses.answer_bytes);
  return static_cast<int64_t>(std::clamp(thinking + stock, 1.0, static_cast<double>(most)));
}

void GrantWindow::SetHeaderBytes() {
  const auto mean_bytes = static_cast<int64_t>(std::ceil(header_wire_bytes_));
  usual_header_bytes_ = profile_.buffer_packets > 0 ? BufferCostBytes(profile_, kReadyHeaderBytes) : kReadyHeaderBytes;
  header_bytes_ = usual_header_bytes_;
  if (mean_bytes > 0) header_bytes_ = std::max(header_bytes_, BufferCostBytes(profile_, mean_bytes));
}

void GrantWindow::ObserveHeaders(int64_t wire_bytes) {
  if (wire_bytes < 1) return;
  const auto bytes = static_cast<double>(wire_bytes);
  const double weight = header_wire_bytes_ > 0 ? kMeanWeight : 1;
  header_wire_bytes_ += weight * (bytes - header_wire_bytes_);
  SetHeaderBytes();
}

void GrantWindow::Observe(std::chrono::nanoseconds ready_latency, int64_t answer_bytes, size_t traffic_class) {
  all_.Observe(ready_latency, answer_bytes);
  classes_[traffic_class].Observe(ready_latency, answer_bytes);
  SetStraggleAfter(kStraggleFactor * all_.ready_latency_ns);
}

void GrantWindow::Responses::Observe(std::chrono::nanoseconds ready_latency, int64_t response_bytes) {
  const double weight = known ? kMeanWeight : 1;
  known = true;
  ready_latency_ns += weight * (static_cast<double>(ready_latency.count()) - ready_latency_ns);
  answer_bytes += weight * (static_cast<double>(response_bytes) - answer_bytes);
}

}  // namespace sluice
