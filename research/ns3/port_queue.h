#pragma once

#include <cstdint>

#include "ns3/drop-tail-queue.h"
#include "ns3/packet.h"

namespace sluice::testing {

// The memory that the ports of one switch share. A port may use at most `alpha` times the free memory (Choudhury and
// Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998). One for each switch with shared
// memory.
struct SharedBuffer {
  int64_t bytes = 0;
  double alpha = 1;
  int64_t used_bytes = 0;
};

// The buffer of one output port: first in, first out. It drops packets that do not fit. It marks packets that arrive at
// a long queue if their sender supports ECN. The packet that is being sent has left the queue. One for each port. Not
// thread-safe.
class PortQueue final : public ns3::DropTailQueue<ns3::Packet> {
 public:
  // Set exactly one of the three bounds. With none the queue is unlimited, like a host's.
  struct Options {
    int64_t bytes = 0;
    int64_t packets = 0;
    SharedBuffer* shared = nullptr;
    int64_t mark_above_bytes = 0;  // DCTCP's K; 0: no marks
  };
  struct Counts {
    int64_t packets = 0;  // arrived, including dropped ones
    int64_t dropped_packets = 0;
    int64_t dropped_bytes = 0;
    int64_t marked_packets = 0;
    int64_t most_bytes = 0;  // queued at once
    int64_t most_packets = 0;
    int64_t sent_bytes = 0;
  };

  explicit PortQueue(const Options& options) : options_(options) {}

  bool Enqueue(ns3::Ptr<ns3::Packet> packet) override;
  ns3::Ptr<ns3::Packet> Dequeue() override;

  const Counts& counts() const { return counts_; }
  void ResetCounts() { counts_ = {}; }

 private:
  bool Admits(int64_t bytes) const;

  const Options options_;
  Counts counts_;
};

}  // namespace sluice::testing
