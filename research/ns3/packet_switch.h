#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ns3/ipv4-address.h"
#include "ns3/node.h"
#include "ns3/point-to-point-net-device.h"

namespace sluice::testing {

// A switch that forwards IP packets from one point-to-point device of its node to another, by their destination. It has
// no IP stack, so it costs one look-up per packet for any number of hosts. One for each switch of the network. Not
// thread-safe.
class PacketSwitch {
 public:
  using Port = ns3::Ptr<ns3::PointToPointNetDevice>;

  PacketSwitch() : node_(ns3::CreateObject<ns3::Node>()) {}
  PacketSwitch(const PacketSwitch&) = delete;
  PacketSwitch& operator=(const PacketSwitch&) = delete;

  ns3::Ptr<ns3::Node> node() const { return node_; }
  // Accepts packets from this port of the node from now on.
  void Attach(const Port& port);
  void Route(ns3::Ipv4Address destination, const Port& port) { ports_[destination.Get()] = port; }
  // Adds a port for all other destinations. If there are several, each pair of hosts always uses the same one.
  void AddUplink(const Port& port) { uplinks_.push_back(port); }

 private:
  bool Forward(ns3::Ptr<ns3::NetDevice> from, ns3::Ptr<const ns3::Packet> packet, uint16_t protocol,
               const ns3::Address& sender);

  const ns3::Ptr<ns3::Node> node_;
  std::unordered_map<uint32_t, Port> ports_;
  std::vector<Port> uplinks_;
};

}  // namespace sluice::testing
