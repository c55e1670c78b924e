#include <algorithm>

#include "sluice/plan.h"

#include "lib/model/slow_start.h"

namespace sluice {

namespace {

// The round trips, in seconds, in which a worker sends nothing of its response.
double WaitingSeconds(const LinkProfile& profile, int64_t sru_bytes) {
  const int64_t handshake_rounds = profile.fresh_connections ? 1 : 0;
  const int64_t rounds = SendingRounds(profile, Packets(profile, sru_bytes)) + handshake_rounds;
  return static_cast<double>(rounds) * absl::ToDoubleSeconds(profile.propagation_rtt);
}

double SendingSeconds(const LinkProfile& profile, int64_t sru_bytes) {
  return static_cast<double>(WireBytes(profile, sru_bytes)) / profile.capacity_bytes_per_second;
}

}  // namespace

double PredictClosedLoopGoodputBps(const LinkProfile& profile, int64_t sru_bytes, int64_t workers) {
  sru_bytes = std::clamp<int64_t>(sru_bytes, 1, kMaxResponseBytes);
  workers = std::clamp<int64_t>(workers, 1, kMaxWorkers);
  const double waiting = WaitingSeconds(profile, sru_bytes);
  const double sending = SendingSeconds(profile, sru_bytes);

  // Either the link is busy after the first response has begun, or the buffer admits so few responses that they take
  // turns. A turn takes as long as one response alone.
  const int64_t at_once = std::max<int64_t>(1, BufferBudgetBytes(profile) / BufferCostBytes(profile, sru_bytes));
  const int64_t turns = (workers - 1) / at_once + 1;
  const double busy_link = waiting + static_cast<double>(workers) * sending;
  const double block_seconds = std::max(busy_link, static_cast<double>(turns) * (waiting + sending));
  return 8.0 * static_cast<double>(sru_bytes * workers) / block_seconds;
}

double GrantedLinkShare(const LinkProfile& profile, int64_t sru_bytes) {
  const auto budget = static_cast<double>(BufferBudgetBytes(profile));
  const double part = std::min(static_cast<double>(WireBytes(profile, sru_bytes)), budget / kPartsOfBudget);
  const double path = profile.capacity_bytes_per_second * absl::ToDoubleSeconds(profile.propagation_rtt);
  return std::min(1.0, budget / (path + part));
}

double PredictGrantsGoodputBps(const LinkProfile& profile, int64_t sru_bytes, int64_t workers) {
  sru_bytes = std::clamp<int64_t>(sru_bytes, 1, kMaxResponseBytes);
  workers = std::clamp<int64_t>(workers, 1, kMaxWorkers);
  const double sending = static_cast<double>(workers) * SendingSeconds(profile, sru_bytes);
  const double block_seconds = WaitingSeconds(profile, sru_bytes) + sending / GrantedLinkShare(profile, sru_bytes);
  return 8.0 * static_cast<double>(sru_bytes * workers) / block_seconds;
}

}  // namespace sluice
