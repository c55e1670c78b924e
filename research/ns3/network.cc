#include "research/ns3/network.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-static-routing-helper.h"
#include "ns3/ipv4.h"
#include "ns3/nstime.h"
#include "ns3/point-to-point-channel.h"
#include "ns3/uinteger.h"

namespace sluice::testing {
namespace {

constexpr size_t kConnectionsPerStack = 64;
// The rate between the aggregator's link and its stacks.
constexpr double kEndlessBitsPerSecond = 1e15;
constexpr uint32_t kFirstHost = (10u << 24) + 1;
constexpr uint32_t kFirstStack = (10u << 24) + (200u << 16) + 1;

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> Network::Create(const Options& options) {
  const size_t arity = options.fat_tree_arity;
  if (arity % 2 != 0) return absl::InvalidArgumentError(absl::StrCat("fat_tree: ", arity, " is not even"));
  if (arity > 0 && options.hosts + 1 > arity * arity * arity / 4) {
    return absl::InvalidArgumentError(absl::StrCat("fat_tree: an arity of ", arity, " has ", arity * arity * arity / 4,
                                                   " hosts, and ", options.hosts + 1, " are needed"));
  }
  if (arity > 0 && options.aggregators != 1) {
    return absl::InvalidArgumentError(absl::StrCat("aggregators: a fat tree has 1, and not ", options.aggregators));
  }
  if (options.buffer_bytes > 0 && options.buffer_packets > 0) {
    return absl::InvalidArgumentError("buffer: give bytes or packets");
  }
  // Must run once in a process, before any event. A frame takes 120.16 ns at 100 Gbit/s.
  [[maybe_unused]] static const bool set_resolution = [] {
    ns3::Time::SetResolution(ns3::Time::PS);
    return true;
  }();
  absl::Status set = SetDefaults(options.tcp);
  if (!set.ok()) return set;
  std::unique_ptr<Network> network(new Network(options));
  if (arity > 0) {
    network->BuildFatTree();
  } else {
    network->BuildStar();
  }
  return network;
}

Network::Network(const Options& options) : options_(options), tcp_dice_(options.seed) {
  const size_t links = options.fat_tree_arity > 0 ? 6 : 2;
  link_delay_ = options.rtt / (2 * links);
}

void Network::BuildStar() {
  PacketSwitch& access = NewSwitch();
  for (size_t i = 0; i < options_.aggregators; ++i) AttachAggregator(access);
  for (size_t i = 0; i < options_.hosts; ++i) {
    hosts_.push_back(NewHost(ns3::Ipv4Address(kFirstHost + static_cast<uint32_t>(i))));
    access.Route(hosts_.back().address, AttachHost(access, hosts_.back()));
  }
}

// There is one path down to each host. On the way up a packet may take any path.
void Network::BuildFatTree() {
  const size_t half = options_.fat_tree_arity / 2;
  std::vector<PacketSwitch*> cores;
  for (size_t i = 0; i < half * half; ++i) cores.push_back(&NewSwitch());
  bool aggregator_attached = false;
  for (size_t pod = 0; pod < 2 * half; ++pod) {
    std::vector<PacketSwitch*> uppers;
    std::vector<std::pair<PacketSwitch*, PacketSwitch::Port>> above;  // of the pod: core, and its port down
    for (size_t i = 0; i < half; ++i) {
      uppers.push_back(&NewSwitch());
      for (size_t j = 0; j < half; ++j) {
        PacketSwitch& core = *cores[i * half + j];
        const auto [up, down] = Join(*uppers.back(), core);
        uppers.back()->AddUplink(up);
        above.emplace_back(&core, down);
      }
    }
    for (size_t i = 0; i < half; ++i) {
      PacketSwitch& edge = NewSwitch();
      std::vector<std::pair<PacketSwitch*, PacketSwitch::Port>> over = above;
      for (PacketSwitch* upper : uppers) {
        const auto [up, down] = Join(edge, *upper);
        edge.AddUplink(up);
        over.emplace_back(upper, down);
      }
      for (size_t j = 0; j < half; ++j) {
        std::vector<ns3::Ipv4Address> addresses;
        PacketSwitch::Port port;
        if (!aggregator_attached) {
          port = AttachAggregator(edge);
          for (const Host& stack : aggregators_[0].stacks) addresses.push_back(stack.address);
          aggregator_attached = true;
        } else if (hosts_.size() < options_.hosts) {
          hosts_.push_back(NewHost(ns3::Ipv4Address(kFirstHost + static_cast<uint32_t>(hosts_.size()))));
          port = AttachHost(edge, hosts_.back());
          addresses.push_back(hosts_.back().address);
        }
        for (const ns3::Ipv4Address address : addresses) {
          edge.Route(address, port);
          for (const auto& [upper, down] : over) upper->Route(address, down);
        }
      }
    }
  }
}

PacketSwitch& Network::NewSwitch() {
  switches_.push_back(std::make_unique<PacketSwitch>());
  if (options_.shared_alpha > 0) {
    shared_buffers_.push_back(
        std::make_unique<SharedBuffer>(SharedBuffer{.bytes = options_.buffer_bytes, .alpha = options_.shared_alpha}));
  }
  return *switches_.back();
}

Network::Link Network::Connect(const ns3::Ptr<ns3::Node>& from, const PortQueue::Options& from_queue,
                               const ns3::Ptr<ns3::Node>& to, const PortQueue::Options& to_queue,
                               double bits_per_second, absl::Duration delay) {
  const auto channel = ns3::CreateObject<ns3::PointToPointChannel>();
  channel->SetAttribute("Delay", ns3::TimeValue(ns3::PicoSeconds(absl::ToInt64Nanoseconds(delay) * 1000)));
  Link link;
  const ns3::Ptr<ns3::Node> nodes[2] = {from, to};
  const PortQueue::Options queues[2] = {from_queue, to_queue};
  for (size_t i = 0; i < 2; ++i) {
    const auto port = ns3::CreateObject<ns3::PointToPointNetDevice>();
    port->SetAddress(ns3::Mac48Address::Allocate());
    port->SetDataRate(ns3::DataRate(static_cast<uint64_t>(bits_per_second)));
    port->SetMtu(static_cast<uint16_t>(options_.tcp.mtu_bytes));
    link.queues[i] = ns3::CreateObject<PortQueue>(queues[i]);
    link.queues[i]->SetMaxSize(ns3::QueueSize(ns3::QueueSizeUnit::PACKETS, 1u << 30));
    port->SetQueue(link.queues[i]);
    nodes[i]->AddDevice(port);
    port->Attach(channel);
    link.ports[i] = port;
  }
  return link;
}

std::pair<PacketSwitch::Port, PacketSwitch::Port> Network::Join(PacketSwitch& lower, PacketSwitch& upper) {
  const Link link = Connect(lower.node(), SwitchQueue(lower), upper.node(), SwitchQueue(upper),
                            options_.bits_per_second, link_delay_);
  lower.Attach(link.ports[0]);
  upper.Attach(link.ports[1]);
  switch_queues_.push_back(link.queues[0]);
  switch_queues_.push_back(link.queues[1]);
  return {link.ports[0], link.ports[1]};
}

PacketSwitch::Port Network::AttachHost(PacketSwitch& access, const Host& host) {
  const double rate = options_.access_bits_per_second > 0 ? options_.access_bits_per_second : options_.bits_per_second;
  const Link link = Connect(access.node(), SwitchQueue(access), host.node, {}, rate, link_delay_);
  access.Attach(link.ports[0]);
  switch_queues_.push_back(link.queues[0]);
  GiveAddress(host);
  return link.ports[0];
}

PacketSwitch::Port Network::AttachAggregator(PacketSwitch& access) {
  Aggregator aggregator{.inside = std::make_unique<PacketSwitch>()};
  PacketSwitch& inside = *aggregator.inside;
  const Link link =
      Connect(access.node(), SwitchQueue(access), inside.node(), {}, options_.bits_per_second, link_delay_);
  access.Attach(link.ports[0]);
  aggregator.bottleneck = link.queues[0];
  aggregator.uplink = link.queues[1];
  inside.Attach(link.ports[1]);
  inside.AddUplink(link.ports[1]);
  const size_t stacks = std::max<size_t>(1, (options_.aggregator_connections - 1) / kConnectionsPerStack + 1);
  for (size_t i = 0; i < stacks; ++i) {
    const size_t number = aggregators_.size() * stacks + i;
    aggregator.stacks.push_back(NewHost(ns3::Ipv4Address(kFirstStack + static_cast<uint32_t>(number))));
    const Host& stack = aggregator.stacks.back();
    const Link branch = Connect(inside.node(), {}, stack.node, {}, kEndlessBitsPerSecond, absl::ZeroDuration());
    inside.Attach(branch.ports[0]);
    inside.Route(stack.address, branch.ports[0]);
    access.Route(stack.address, link.ports[0]);
    GiveAddress(stack);
  }
  aggregators_.push_back(std::move(aggregator));
  return link.ports[0];
}

const Host& Network::NextAggregatorStack(size_t aggregator) {
  Aggregator& owner = aggregators_[aggregator];
  return owner.stacks[owner.next_stack++ % owner.stacks.size()];
}

Host Network::NewHost(ns3::Ipv4Address address) {
  const Host host{ns3::CreateObject<ns3::Node>(), address};
  ns3::InternetStackHelper stack;
  stack.SetIpv6StackInstall(false);
  stack.SetRoutingHelper(ns3::Ipv4StaticRoutingHelper());
  stack.Install(host.node);
  return host;
}

// All hosts are in one network, reached through the one interface. Rejected: Ipv4AddressHelper, because it puts a
// queueing policy above the device.
void Network::GiveAddress(const Host& host) {
  const auto ip = host.node->GetObject<ns3::Ipv4>();
  const uint32_t interface = ip->AddInterface(host.node->GetDevice(host.node->GetNDevices() - 1));
  ip->AddAddress(interface, ns3::Ipv4InterfaceAddress(host.address, ns3::Ipv4Mask("255.0.0.0")));
  ip->SetMetric(interface, 1);
  ip->SetUp(interface);
}

PortQueue::Options Network::SwitchQueue(const PacketSwitch& owner) {
  PortQueue::Options queue{.bytes = options_.buffer_bytes,
                           .packets = options_.buffer_packets,
                           .mark_above_bytes = options_.mark_above_bytes};
  if (options_.shared_alpha > 0) {
    const auto found = std::find_if(switches_.begin(), switches_.end(),
                                    [&owner](const auto& candidate) { return candidate.get() == &owner; });
    queue.bytes = 0;
    queue.shared = shared_buffers_[static_cast<size_t>(found - switches_.begin())].get();
  }
  return queue;
}

ns3::Ptr<HostSocket> Network::NewSocket(const Host& host) {
  return HostSocket::Create(host.node, options_.tcp, tcp_dice_, tcp_counts_);
}

int64_t Network::OtherDrops() const {
  int64_t drops = 0;
  for (const auto& queue : switch_queues_) drops += queue->counts().dropped_packets;
  return drops;
}

void Network::ResetCounts() {
  tcp_counts_ = {};
  for (const Aggregator& aggregator : aggregators_) aggregator.bottleneck->ResetCounts();
  for (const auto& queue : switch_queues_) queue->ResetCounts();
}

}  // namespace sluice::testing
