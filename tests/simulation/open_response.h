#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "sluice/time_point.h"

namespace sluice::testing {

// A response of a fan-out that has begun, on an open stream, at the end of a turn of the client's thread.
struct OpenResponse {
  std::pair<uint64_t, uint32_t> id;  // its connection and its stream
  uint64_t block = 0;                // of its fan-out
  size_t traffic_class = 0;
  TimePoint deadline;
  bool ready = false;      // before this turn
  int64_t rest_bytes = 0;  // of its message, which have not come; 0 before its prefix has come
  bool granted = false;    // bytes were granted in this turn
  bool could_be = false;   // it has no grant, and nothing but the order holds it
  bool waits = false;      // since before this turn
};

// Bytes that were granted in a turn.
struct TurnGrant {
  uint64_t block = 0;
  size_t traffic_class = 0;
  int64_t cost_bytes = 0;
  bool perhaps = false;  // of a stream that ended in this turn: the bytes may have been granted before
};

}  // namespace sluice::testing
