#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/simulation/faults.h"

namespace sluice::testing {

// What is in a simulated world, and what may go wrong in it.
struct WorldShape {
  size_t workers = 16;
  size_t hung_workers = 0;  // the first ones
  bool faults = true;
  bool losses = false;                 // of packets, for other reasons than the port's buffer
  bool storm = false;                  // ample room, and workers that think
  uint32_t stream_numbers = 1u << 30;  // of each connection
  size_t dead_addresses = 0;           // of hosts that are away; then all workers speak TLS
  // Drawn by DrawBadWorkers.
  size_t slow_workers = 0;    // the last ones are behind slow links
  bool rates_change = false;  // of these
  bool pauses = false;        // of the processes of workers
  bool large_heads = false;
};

// Workers that are neither healthy nor hung, in half of the worlds.
inline void DrawBadWorkers(Dice& dice, WorldShape& shape) {
  if (dice.OneIn(2)) return;
  if (dice.OneIn(2)) shape.slow_workers = 1 + dice.Below(shape.workers / 3);
  shape.rates_change = dice.OneIn(2);
  shape.pauses = dice.OneIn(4);
  shape.large_heads = dice.OneIn(6);
}

}  // namespace sluice::testing
