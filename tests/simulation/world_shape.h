#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/simulation/faults.h"

namespace sluice::testing {

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
};

// Adds workers that are neither healthy nor hung, in half of the worlds.
inline void DrawBadWorkers(Dice& dice, WorldShape& shape) {
  if (dice.OneIn(2)) return;
  if (dice.OneIn(2)) shape.slow_workers = 1 + dice.Below(shape.workers / 3);
  shape.rates_change = dice.OneIn(2);
  shape.pauses = dice.OneIn(4);
  shape.large_heads = dice.OneIn(6);
}

// Lets the policy change in one of eight worlds. Call it last: the other draws of a seed stay as they are.
inline void DrawSwitches(Dice& dice, WorldShape& shape) {
  shape.switches = !shape.storm && dice.OneIn(8);
}

}  // namespace sluice::testing
