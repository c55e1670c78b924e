#include "research/ns3/port_queue.h"

#include <algorithm>

#include "ns3/ipv4-header.h"
#include "ns3/ppp-header.h"

namespace sluice::testing {
namespace {

// Sets Congestion Experienced (RFC 3168) in a packet whose ends support ECN.
bool Mark(const ns3::Ptr<ns3::Packet>& packet) {
  ns3::PppHeader link;
  ns3::Ipv4Header ip;
  packet->RemoveHeader(link);
  packet->RemoveHeader(ip);
  const bool capable = ip.GetEcn() == ns3::Ipv4Header::ECN_ECT0 || ip.GetEcn() == ns3::Ipv4Header::ECN_ECT1;
  if (capable) ip.SetEcn(ns3::Ipv4Header::ECN_CE);
  packet->AddHeader(ip);
  packet->AddHeader(link);
  return capable;
}

}  // namespace

bool PortQueue::Admits(int64_t bytes) const {
  const int64_t queued = GetNBytes();
  if (options_.packets > 0) return GetNPackets() < options_.packets;
  if (options_.bytes > 0) return queued + bytes <= options_.bytes;
  if (options_.shared == nullptr) return true;
  const int64_t free = options_.shared->bytes - options_.shared->used_bytes;
  return bytes <= free && static_cast<double>(queued + bytes) <= options_.shared->alpha * static_cast<double>(free);
}

bool PortQueue::Enqueue(ns3::Ptr<ns3::Packet> packet) {
  const int64_t bytes = packet->GetSize();
  ++counts_.packets;
  if (!Admits(bytes)) {
    ++counts_.dropped_packets;
    counts_.dropped_bytes += bytes;
    DropBeforeEnqueue(packet);
    return false;
  }
  if (options_.mark_above_bytes > 0 && GetNBytes() > options_.mark_above_bytes && Mark(packet)) {
    ++counts_.marked_packets;
  }
  if (!DropTailQueue::Enqueue(packet)) return false;
  if (options_.shared != nullptr) options_.shared->used_bytes += bytes;
  counts_.most_bytes = std::max<int64_t>(counts_.most_bytes, GetNBytes());
  counts_.most_packets = std::max<int64_t>(counts_.most_packets, GetNPackets());
  return true;
}

ns3::Ptr<ns3::Packet> PortQueue::Dequeue() {
  ns3::Ptr<ns3::Packet> packet = DropTailQueue::Dequeue();
  if (packet == nullptr) return packet;
  counts_.sent_bytes += packet->GetSize();
  if (options_.shared != nullptr) options_.shared->used_bytes -= packet->GetSize();
  return packet;
}

}  // namespace sluice::testing
