#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace sluice {

// TCP's counters for the network namespace of this process, for all processes in it; in Kubernetes that is the pod.
// Read from /proc/self/net/netstat (TcpExt, names in include/uapi/linux/snmp.h) and /proc/self/net/snmp. A counter that
// this kernel lacks is 0.
struct TcpExt {
  uint64_t retransmitted_packets = 0;  // RetransSegs
  uint64_t rtos = 0;                   // TCPTimeouts: expired retransmission timers, with repetitions
  // The part of rtos that expired although a later packet had been acknowledged, or during another recovery:
  // TCPSackFailures, TCPRenoFailures, TCPSackRecoveryFail, TCPRenoRecoveryFail, TCPLossFailures.
  uint64_t rtos_after_feedback = 0;
  uint64_t fast_recoveries = 0;       // TCPSackRecovery, TCPRenoRecovery: losses that the receiver reported
  uint64_t lost_retransmits = 0;      // TCPLostRetransmit
  uint64_t spurious_rtos = 0;         // TCPSpuriousRTOs: the acknowledgement was only late
  uint64_t tail_loss_probes = 0;      // TCPLossProbes
  uint64_t tail_loss_recoveries = 0;  // TCPLossProbeRecovery: losses that a probe repaired
};

// Returns Unavailable if the files are missing, or not in the kernel's format. Tests give another folder as `net`.
absl::StatusOr<TcpExt> ReadTcpExt(const std::string& net = "/proc/self/net");

}  // namespace sluice
