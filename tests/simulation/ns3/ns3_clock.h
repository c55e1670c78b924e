#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "sluice/link_schedule.h"

#include "ns3/event-id.h"
#include "ns3/nstime.h"
#include "ns3/simulator.h"

namespace sluice::testing {

// The time of ns-3 as the product knows it.
inline TimePoint Ns3Now() {
  return TimePoint() + std::chrono::hours(1) + std::chrono::nanoseconds(ns3::Simulator::Now().GetNanoSeconds());
}
inline ns3::EventId Ns3After(std::chrono::nanoseconds pause, std::function<void()> event) {
  return ns3::Simulator::Schedule(ns3::NanoSeconds(std::max<int64_t>(pause.count(), 0)), std::move(event));
}
inline ns3::EventId Ns3At(TimePoint time, std::function<void()> event) {
  return Ns3After(time - Ns3Now(), std::move(event));
}

}  // namespace sluice::testing
