#include "research/ns3/packet_switch.h"

#include "ns3/ipv4-header.h"
#include "ns3/packet.h"

namespace sluice::testing {

void PacketSwitch::Attach(const Port& port) {
  port->SetReceiveCallback(ns3::MakeCallback(&PacketSwitch::Forward, this));
}

bool PacketSwitch::Forward(ns3::Ptr<ns3::NetDevice>, ns3::Ptr<const ns3::Packet> packet, uint16_t protocol,
                           const ns3::Address&) {
  ns3::Ipv4Header ip;
  packet->PeekHeader(ip);
  const uint32_t destination = ip.GetDestination().Get();
  Port port;
  if (const auto known = ports_.find(destination); known != ports_.end()) {
    port = known->second;
  } else if (!uplinks_.empty()) {
    const uint64_t pair = (uint64_t{ip.GetSource().Get()} << 32 | destination) * 0x9e3779b97f4a7c15;
    port = uplinks_[(pair >> 32) % uplinks_.size()];
  }
  return port != nullptr && port->Send(packet->Copy(), port->GetBroadcast(), protocol);
}

}  // namespace sluice::testing
