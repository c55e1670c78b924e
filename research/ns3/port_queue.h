#pragma once

#include <cstdint>

#include "ns3/drop-tail-queue.h"
#include "ns3/packet.h"

namespace sluice::testing {

// The memory that the ports of one switch share. A port may hold at most `alpha` times what is free (Choudhury and
// Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998). One a switch that shares.
struct SharedBuffer {
  int64_t bytes = 0;
  double alpha = 1;
  int64_t used_bytes = 0;
};

// The buffer of one output port: first in, first out. What does not fit is dropped; what comes to a long queue is
// marked, where its sender knows ECN. The packet that is being sent is no longer in it. One a port.
class PortQueue final : public ns3::DropTailQueue<ns3::Packet> {
 public:
  // Exactly one of the three bounds is set; with none the queue is endless, as that of a host.
  struct Options {
    int64_t bytes = 0;
    int64_t packets = 0;
    SharedBuffer* shared = nullptr;
    int64_t mark_above_bytes = 0;  // DCTCP's K; 0: no marks
  };
  struct Counts {
    int64_t packets = 0;  // that have come, dropped ones too
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
