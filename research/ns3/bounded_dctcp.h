#pragma once

#include "ns3/tcp-dctcp.h"

namespace sluice::testing {

// DCTCP as Linux has it (net/ipv4/tcp_dctcp.c, dctcp_ssthresh): a mark leaves a window of two segments at least. With
// that of ns-3 3.37 a window that is marked again and again falls below one segment. Then nothing is sent, no ACK and
// no timeout comes, and the connection is stuck for good. One for each connection. Not thread-safe.
class BoundedDctcp final : public ns3::TcpDctcp {
 public:
  static ns3::TypeId GetTypeId();

  uint32_t GetSsThresh(ns3::Ptr<const ns3::TcpSocketState> state, uint32_t bytes_in_flight) override;
  ns3::Ptr<ns3::TcpCongestionOps> Fork() override;
};

}  // namespace sluice::testing
