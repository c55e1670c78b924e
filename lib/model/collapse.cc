#include "lib/model/collapse.h"

#include <algorithm>
#include <cmath>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice {
namespace {

// 2^32, the maximum number of packets of the largest SRU.
constexpr double kMaxCount = 4294967296;
constexpr absl::Duration kMaxRto = absl::Hours(1);

absl::Status CheckCount(absl::string_view field, double value) {
  if (value >= 0 && value <= kMaxCount) return absl::OkStatus();  // false for NaN
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", it must be from 0 to 4294967296"));
}

CollapseEstimate AtWindow(const LinkProfile& profile, int64_t sru_packets, int64_t workers, double window,
                          const CollapseOptions& options) {
  CollapseEstimate estimate;
  estimate.window_packets = window;
  estimate.rounds =
      options.rounds > 0 ? options.rounds : std::llround(std::ceil(static_cast<double>(sru_packets) / window));
  const double loss = LossProbability(profile, workers, window);
  estimate.loss_probability = loss;
  estimate.full_loss_probability = FullLossProbability(loss, window, options.window_deviation);
  estimate.full_loss_bound = FullLossBound(loss, window, options.window_deviation);
  const auto rounds = static_cast<double>(estimate.rounds);
  estimate.timeout_probability = ProbabilityOfAny(estimate.full_loss_probability, rounds);
  // One worker's timeout delays the whole block. The paper states this before (9), and then counts one worker only.
  estimate.block_timeout_probability =
      ProbabilityOfAny(estimate.full_loss_probability, rounds * static_cast<double>(workers));
  return estimate;
}

// Tries several windows: a connection goes through several, while the source has one w. The initial window alone would
// predict no losses for a fresh connection with IW = 1 at N = 16. Packet simulation shows two timeouts a block there.
CollapseEstimate AtWorstWindow(const LinkProfile& profile, int64_t sru_packets, int64_t workers,
                               const CollapseOptions& options) {
  const int64_t largest = WndMaxPackets(profile, sru_packets);
  CollapseEstimate worst;
  for (int64_t window = std::min(profile.initial_window_packets, largest); window <= largest; window *= 2) {
    const CollapseEstimate estimate = AtWindow(profile, sru_packets, workers, static_cast<double>(window), options);
    if (estimate.timeout_probability >= worst.timeout_probability) worst = estimate;
  }
  return worst;
}

}  // namespace

absl::Status CollapseOptions::Validate() const {
  if (!(rto_min >= absl::ZeroDuration() && rto_min <= kMaxRto)) {
    return absl::InvalidArgumentError(absl::StrCat("rto_min is ", absl::FormatDuration(rto_min),
                                                   ", it must be from 0 to ", absl::FormatDuration(kMaxRto)));
  }
  absl::Status status = CheckCount("window_packets", window_packets);
  status.Update(CheckCount("window_deviation", window_deviation));
  status.Update(CheckCount("rounds", static_cast<double>(rounds)));
  return status;
}

double LossProbability(const LinkProfile& profile, int64_t workers, double window_packets) {
  const double frame = static_cast<double>(profile.frame_bytes);
  const double buffer = static_cast<double>(BufferBudgetBytes(profile)) / frame;
  const double pipe = profile.capacity_bytes_per_second * absl::ToDoubleSeconds(profile.propagation_rtt) / frame;
  const double at_once = static_cast<double>(workers) * window_packets;
  return std::max(0.0, (at_once - buffer - pipe) / at_once);
}

CollapseEstimate PredictCollapse(const LinkProfile& profile, int64_t sru_bytes, int64_t workers,
                                 const CollapseOptions& options) {
  sru_bytes = std::clamp<int64_t>(sru_bytes, 1, kMaxResponseBytes);
  workers = std::clamp<int64_t>(workers, 1, kMaxWorkers);
  const int64_t sru_packets = Packets(profile, sru_bytes);
  // Bound the window: no window is larger than the SRU, and none is smaller than a packet.
  const double window = std::clamp(options.window_packets, 1.0, static_cast<double>(sru_packets));
  CollapseEstimate estimate = options.window_packets > 0 ? AtWindow(profile, sru_packets, workers, window, options)
                                                         : AtWorstWindow(profile, sru_packets, workers, options);

  estimate.lack_of_acks_probability =
      LackOfAcksProbability(estimate.loss_probability, std::llround(estimate.window_packets));

  const double count = static_cast<double>(workers);
  const double sending = count * static_cast<double>(WireBytes(profile, sru_bytes)) / profile.capacity_bytes_per_second;
  const double rto = absl::ToDoubleSeconds(options.rto_min);
  const double payload_bits = 8.0 * count * static_cast<double>(sru_bytes);
  estimate.goodput_bps = payload_bits / (sending + estimate.block_timeout_probability * rto);
  estimate.printed_goodput_bps = payload_bits / (sending + estimate.timeout_probability * rto);
  return estimate;
}

std::optional<double> PredictUnscheduledGoodputBps(const LinkProfile& profile, int64_t sru_bytes, int64_t workers) {
  workers = std::clamp<int64_t>(workers, 1, kMaxWorkers);
  // Divide the buffer: the bytes of all responses may exceed 64 bits.
  if (BufferCostBytes(profile, sru_bytes) > BufferBudgetBytes(profile) / workers) return std::nullopt;
  return PredictClosedLoopGoodputBps(profile, sru_bytes, workers);
}

}  // namespace sluice
