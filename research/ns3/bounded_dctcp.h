#pragma once

#include "ns3/tcp-dctcp.h"

namespace sluice::testing {

// DCTCP as in Linux (net/ipv4/tcp_dctcp.c, dctcp_ssthresh): a mark leaves a window of at least two segments. With DCTCP
// of ns-3 3.37, repeated marks shrink a window below one segment. Then nothing is sent, neither an ACK nor a timeout
// occurs, and the connection hangs permanently. One for each connection. Not thread-safe.
class BoundedDctcp final : public ns3::TcpDctcp {
 public:
  static ns3::TypeId GetTypeId();

  uint32_t GetSsThresh(ns3::Ptr<const ns3::TcpSocketState> state, uint32_t bytes_in_flight) override;
  ns3::Ptr<ns3::TcpCongestionOps> Fork() override;
};

}  // namespace sluice::testing
