#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "lib/scheduling/link_schedule.h"
#include "ns3/event-id.h"
#include "ns3/nstime.h"
#include "ns3/simulator.h"

namespace sluice::testing {

// The time of ns-3 in Sluice's type.
inline constexpr TimePoint kNs3Start{std::chrono::hours(1)};
inline TimePoint Ns3Now() {
  return kNs3Start + std::chrono::nanoseconds(ns3::Simulator::Now().GetNanoSeconds());
}
inline ns3::EventId Ns3After(std::chrono::nanoseconds pause, std::function<void()> event) {
  return ns3::Simulator::Schedule(ns3::NanoSeconds(std::max<int64_t>(pause.count(), 0)), std::move(event));
}
// Runs an event at `time`. Events of the same time run in the order of their creation. ns-3 counts in picoseconds, so a
// pause relative to Ns3Now(), which has whole nanoseconds, would change that order.
inline ns3::EventId Ns3At(TimePoint time, std::function<void()> event) {
  const auto since_start = std::chrono::nanoseconds(time - kNs3Start);
  const ns3::Time pause = ns3::NanoSeconds(since_start.count()) - ns3::Simulator::Now();
  return ns3::Simulator::Schedule(std::max(pause, ns3::Time(0)), std::move(event));
}

}  // namespace sluice::testing
