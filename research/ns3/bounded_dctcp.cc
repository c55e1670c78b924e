#include "research/ns3/bounded_dctcp.h"

#include <algorithm>

namespace sluice::testing {

NS_OBJECT_ENSURE_REGISTERED(BoundedDctcp);

ns3::TypeId BoundedDctcp::GetTypeId() {
  static const ns3::TypeId type =
      ns3::TypeId("sluice::testing::BoundedDctcp").SetParent<ns3::TcpDctcp>().AddConstructor<BoundedDctcp>();
  return type;
}

uint32_t BoundedDctcp::GetSsThresh(ns3::Ptr<const ns3::TcpSocketState> state, uint32_t bytes_in_flight) {
  constexpr uint32_t kMinSegments = 2;
  return std::max(TcpDctcp::GetSsThresh(state, bytes_in_flight), kMinSegments * state->m_segmentSize);
}

ns3::Ptr<ns3::TcpCongestionOps> BoundedDctcp::Fork() {
  return ns3::CopyObject<BoundedDctcp>(this);
}

}  // namespace sluice::testing
