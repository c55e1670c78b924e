#include "lib/scheduling/worker_share.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

// One budget would be enough for workers that take no time. Pauses of a process, and of the scheduler of a host, take
// some.
constexpr double kLapBudgets = 2;
constexpr int64_t kLapRoundTrips = 2;
constexpr double kShrink = 0.5;
// Rejected: doubling. The share of a worker that is slightly too slow then swings between one and two times its need.
// Together, several such workers have a whole budget on average.
constexpr double kGrowth = 0.25;
// How fast the least time to ready follows a route that has become longer.
constexpr int kRiseShare = 64;

}  // namespace

int64_t WorkerShare::Bytes(const Link& link) const {
  return std::max<int64_t>(std::llround(static_cast<double>(link.plan_bytes) * part_of_budget_), link.packet_bytes);
}

void WorkerShare::OnReady(std::chrono::nanoseconds ready_after) {
  if (least_ready_after_.count() == 0 || ready_after < least_ready_after_) {
    least_ready_after_ = ready_after;
  } else {
    least_ready_after_ += (ready_after - least_ready_after_) / kRiseShare;
  }
}

bool WorkerShare::OnOwed(const Link& link, int64_t owed_bytes, int64_t delivered_bytes) {
  if (to_deliver_ > 0) {
    // Fewer bytes are owed after a call ends, too, but that is not a delivery.
    const int64_t left = to_deliver_ - delivered_bytes;
    to_deliver_ = std::min(left, owed_bytes);
    if (to_deliver_ > 0) return Look(link, false);
    if (left <= 0) EndLap(link);
  }
  Begin(link, owed_bytes);
  return owes();
}

void WorkerShare::EndLap(const Link& link) {
  if (Overtaken(link)) return Shrink(link);
  if (TakesLong(link) || 2 * lap_bytes_ < Bytes(link)) return;
  part_of_budget_ = std::min(part_of_budget_ + std::max(part_of_budget_ * kGrowth, PacketOf(link)), 1.0);
}

bool WorkerShare::Look(const Link& link, bool wanted) {
  if (!owes() || !(Overtaken(link) || (wanted && TakesLong(link)))) return false;
  Shrink(link);
  lap_received_ = link.received_bytes;
  lap_since_ = link.now;
  return true;
}

bool WorkerShare::IsLong(const Link& link) const {
  return LinkIsAhead(link) || TakesLong(link);
}

// Includes the end of the long lap: the timer of the schedule fires then, and must find the lap late.
bool WorkerShare::TakesLong(const Link& link) const {
  return link.now - lap_since_ >= link.long_lap;
}

bool WorkerShare::LinkIsAhead(const Link& link) const {
  // Use double: leases and profiles set no upper bound of a plan, so twice a plan may overflow an integer.
  return static_cast<double>(link.received_bytes - lap_received_) > kLapBudgets * static_cast<double>(link.plan_bytes);
}

bool WorkerShare::Overtaken(const Link& link) const {
  return LinkIsAhead(link) && link.now - lap_since_ > kLapRoundTrips * least_ready_after_;
}

// Keep at least a packet: a smaller share would only take longer to grow again.
void WorkerShare::Shrink(const Link& link) {
  part_of_budget_ = std::min(std::max(part_of_budget_ * kShrink, PacketOf(link)), part_of_budget_);
}

void WorkerShare::OnStall(const Link& link) {
  part_of_budget_ = std::min(part_of_budget_, PacketOf(link));
}

double WorkerShare::PacketOf(const Link& link) {
  return static_cast<double>(link.packet_bytes) / static_cast<double>(link.plan_bytes);
}

void WorkerShare::Begin(const Link& link, int64_t owed_bytes) {
  lap_bytes_ = to_deliver_ = std::max<int64_t>(owed_bytes, 0);
  lap_received_ = link.received_bytes;
  lap_since_ = link.now;
}

}  // namespace sluice
