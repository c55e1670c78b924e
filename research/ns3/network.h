#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ns3/ipv4-address.h"
#include "ns3/node.h"
#include "research/ns3/host_socket.h"
#include "research/ns3/packet_switch.h"
#include "research/ns3/port_queue.h"

namespace sluice::testing {

// A host of the network: an IP stack with one address.
struct Host {
  ns3::Ptr<ns3::Node> node;
  ns3::Ipv4Address address;
};

// Hosts, switches and the links between them. The first links are those of the aggregators, and the switch ports that
// feed them are the bottlenecks. A star has one switch. A fat tree of arity k (Al-Fares, Loukissas and Vahdat, 2008)
// has three layers of switches with k ports each, and k³ / 4 hosts. One for each simulation. It sets the time
// resolution of ns-3 to picoseconds.
class Network {
 public:
  struct Options {
    double bits_per_second = 1e9;                  // of the aggregator's link, and of links between switches
    double access_bits_per_second = 0;             // of the workers' links; 0: the same
    absl::Duration rtt = absl::Microseconds(100);  // of an idle network, between the aggregator and the farthest host
    int64_t buffer_bytes = 32 * 1024;              // of each port; set exactly one of the two
    int64_t buffer_packets = 0;
    double shared_alpha = 0;            // above 0: `buffer_bytes` is the memory that all ports of a switch share
    int64_t mark_above_bytes = 0;       // ECN; 0: no marks
    size_t aggregators = 1;             // a fat tree has one
    size_t hosts = 1;                   // in addition to the aggregators
    size_t fat_tree_arity = 0;          // 0: a star
    size_t aggregator_connections = 1;  // expected number of connections of each
    TcpOptions tcp;
    uint64_t seed = 1;  // of TCP's random timeouts
  };
  static absl::StatusOr<std::unique_ptr<Network>> Create(const Options& options);

  const Host& host(size_t host) const { return hosts_[host]; }
  // Returns an aggregator's IP stack for its next connection. A stack of ns-3 searches all its connections for each
  // packet, so an aggregator has several stacks behind its link.
  const Host& NextAggregatorStack(size_t aggregator);
  // Returns the stack on which the host of an aggregator can listen.
  const Host& aggregator_host(size_t aggregator) const { return aggregators_[aggregator].stacks[0]; }
  ns3::Ptr<HostSocket> NewSocket(const Host& host);

  const PortQueue& bottleneck(size_t aggregator) const { return *aggregators_[aggregator].bottleneck; }
  // The queue of an aggregator's host toward its switch.
  const PortQueue& uplink(size_t aggregator) const { return *aggregators_[aggregator].uplink; }
  // Returns the packets dropped at all other ports of switches.
  int64_t OtherDrops() const;
  const TcpCounts& tcp_counts() const { return tcp_counts_; }
  void ResetCounts();
  const Options& options() const { return options_; }

 private:
  // The host of an aggregator: stacks behind one link.
  struct Aggregator {
    std::unique_ptr<PacketSwitch> inside;  // between the link and the stacks
    std::vector<Host> stacks;
    size_t next_stack = 0;
    ns3::Ptr<PortQueue> bottleneck;
    ns3::Ptr<PortQueue> uplink;
  };
  // The two ends of a link, and their queues.
  struct Link {
    PacketSwitch::Port ports[2];
    ns3::Ptr<PortQueue> queues[2];
  };

  explicit Network(const Options& options);
  void BuildStar();
  void BuildFatTree();
  PacketSwitch& NewSwitch();
  Link Connect(const ns3::Ptr<ns3::Node>& from, const PortQueue::Options& from_queue, const ns3::Ptr<ns3::Node>& to,
               const PortQueue::Options& to_queue, double bits_per_second, absl::Duration delay);
  // Connects two switches, and returns the ports of both.
  std::pair<PacketSwitch::Port, PacketSwitch::Port> Join(PacketSwitch& lower, PacketSwitch& upper);
  PacketSwitch::Port AttachHost(PacketSwitch& access, const Host& host);
  // Adds an aggregator.
  PacketSwitch::Port AttachAggregator(PacketSwitch& access);
  Host NewHost(ns3::Ipv4Address address);
  void GiveAddress(const Host& host);
  PortQueue::Options SwitchQueue(const PacketSwitch& owner);

  const Options options_;
  absl::Duration link_delay_;
  Dice tcp_dice_;
  TcpCounts tcp_counts_;
  std::vector<Host> hosts_;
  std::vector<Aggregator> aggregators_;
  std::vector<std::unique_ptr<PacketSwitch>> switches_;
  std::vector<std::unique_ptr<SharedBuffer>> shared_buffers_;  // of the switches; empty if each port has its own buffer
  std::vector<ns3::Ptr<PortQueue>> switch_queues_;
};

}  // namespace sluice::testing
