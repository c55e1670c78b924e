#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/simulation/faults.h"

namespace sluice::testing {

// Calls of a kind that must not cost the others more than their bytes.
enum class Neighbours {
  kNone,
  kScans,    // large fan-outs of the method of small ones, which are expected to be as large, and have short deadlines
  kStreams,  // thousands of streams of a class of a low weight, which are ready or wait for a connection
  kErrors,   // two workers end each call with an error with large details
  kHung,     // of calls that respond at once otherwise, some hang
};

// The parts of a simulated world, and the faults that may occur in it.
struct WorldShape {
  size_t workers = 16;
  size_t hung_workers = 0;  // the first ones
  bool faults = true;
  bool losses = false;                 // of packets, for reasons other than the port's buffer
  bool storm = false;                  // ample room, and workers that think
  uint32_t stream_numbers = 1u << 30;  // of each connection
  size_t dead_addresses = 0;           // unreachable hosts; if any, all workers use TLS
  // Drawn by DrawBadWorkers.
  size_t slow_workers = 0;    // the last ones are behind slow links
  bool rates_change = false;  // the rates of slow workers change
  bool pauses = false;        // the processes of workers pause
  bool large_heads = false;
  bool hurried = false;        // fan-outs come faster than the link can take, and half of them have short deadlines
  size_t tunnels = 0;          // of clients, through the proxy, each to a byte worker of its own
  bool tunnel_faults = false;  // their clients and workers pause, stop, and disappear
  bool switches = false;       // the policy changes while calls are out
  Neighbours neighbours = Neighbours::kNone;

  bool has_large_heads() const { return large_heads || neighbours == Neighbours::kErrors; }
};

// Adds workers that are neither healthy nor hung, in half of the worlds.
inline void DrawBadWorkers(Dice& dice, WorldShape& shape) {
  if (dice.OneIn(2)) return;
  if (dice.OneIn(2)) shape.slow_workers = 1 + dice.Below(shape.workers / 3);
  shape.rates_change = dice.OneIn(2);
  shape.pauses = dice.OneIn(4);
  shape.large_heads = dice.OneIn(6);
}

// Lets the policy change in one of eight worlds. Call it after the draws above, which stay as they are for a seed.
inline void DrawSwitches(Dice& dice, WorldShape& shape) {
  shape.switches = !shape.storm && dice.OneIn(8);
}

// Adds neighbours in one of eight worlds. Call it last.
inline void DrawNeighbours(Dice& dice, WorldShape& shape) {
  if (!dice.OneIn(8) || shape.storm || shape.switches || shape.dead_addresses > 0) return;
  constexpr Neighbours kKinds[] = {Neighbours::kScans, Neighbours::kErrors, Neighbours::kHung};
  shape.neighbours = kKinds[dice.Below(3)];
}

}  // namespace sluice::testing
