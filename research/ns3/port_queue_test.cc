#include "research/ns3/port_queue.h"

#include "gtest/gtest.h"
#include "ns3/ipv4-header.h"
#include "ns3/ppp-header.h"

namespace sluice {
namespace {

using testing::PortQueue;
using testing::SharedBuffer;

ns3::Ptr<PortQueue> Queue(const PortQueue::Options& options) {
  const auto queue = ns3::CreateObject<PortQueue>(options);
  queue->SetMaxSize(ns3::QueueSize(ns3::QueueSizeUnit::PACKETS, 1u << 30));
  return queue;
}

// An IP packet as in the queue of a device: 100 bytes.
ns3::Ptr<ns3::Packet> IpPacket(ns3::Ipv4Header::EcnType ecn) {
  const auto packet = ns3::Create<ns3::Packet>(78);
  ns3::Ipv4Header ip;
  ip.SetEcn(ecn);
  ip.SetPayloadSize(78);
  packet->AddHeader(ip);
  ns3::PppHeader link;
  link.SetProtocol(0x0021);
  packet->AddHeader(link);
  return packet;
}

ns3::Ipv4Header::EcnType EcnOf(const ns3::Ptr<ns3::Packet>& packet) {
  ns3::PppHeader link;
  ns3::Ipv4Header ip;
  packet->RemoveHeader(link);
  packet->RemoveHeader(ip);
  return ip.GetEcn();
}

TEST(PortQueueTest, DropsWhatDoesNotFitItsBytes) {
  const auto queue = Queue({.bytes = 250});
  EXPECT_TRUE(queue->Enqueue(ns3::Create<ns3::Packet>(100)));
  EXPECT_TRUE(queue->Enqueue(ns3::Create<ns3::Packet>(150)));
  EXPECT_FALSE(queue->Enqueue(ns3::Create<ns3::Packet>(1)));
  EXPECT_EQ(queue->counts().dropped_packets, 1);
  EXPECT_EQ(queue->counts().most_bytes, 250);
  EXPECT_EQ(queue->Dequeue()->GetSize(), 100u);
  EXPECT_TRUE(queue->Enqueue(ns3::Create<ns3::Packet>(100)));
  EXPECT_EQ(queue->counts().sent_bytes, 100);
}

TEST(PortQueueTest, CountsPacketsWhateverTheirSize) {
  const auto queue = Queue({.packets = 2});
  EXPECT_TRUE(queue->Enqueue(ns3::Create<ns3::Packet>(1500)));
  EXPECT_TRUE(queue->Enqueue(ns3::Create<ns3::Packet>(40)));
  EXPECT_FALSE(queue->Enqueue(ns3::Create<ns3::Packet>(40)));
}

// With alpha 1, a port alone may use half of the memory, and the next port half of the rest.
TEST(PortQueueTest, TheThresholdOfASharedBufferFallsAsItFills) {
  SharedBuffer memory{.bytes = 1000, .alpha = 1};
  const auto first = Queue({.shared = &memory});
  const auto second = Queue({.shared = &memory});
  int held = 0;
  while (first->Enqueue(ns3::Create<ns3::Packet>(10))) ++held;
  EXPECT_EQ(held, 50);
  int held_second = 0;
  while (second->Enqueue(ns3::Create<ns3::Packet>(10))) ++held_second;
  EXPECT_EQ(held_second, 25);
  first->Dequeue();
  EXPECT_EQ(memory.used_bytes, 740);
  EXPECT_FALSE(first->Enqueue(ns3::Create<ns3::Packet>(10))) << "above its threshold by what the other holds";
}

TEST(PortQueueTest, MarksWhatComesToALongQueueIfItsSenderKnowsEcn) {
  const auto queue = Queue({.bytes = 10'000, .mark_above_bytes = 150});
  for (int i = 0; i < 3; ++i) queue->Enqueue(IpPacket(ns3::Ipv4Header::ECN_ECT0));
  queue->Enqueue(IpPacket(ns3::Ipv4Header::ECN_NotECT));
  EXPECT_EQ(queue->counts().marked_packets, 1);
  EXPECT_EQ(EcnOf(queue->Dequeue()), ns3::Ipv4Header::ECN_ECT0);
  EXPECT_EQ(EcnOf(queue->Dequeue()), ns3::Ipv4Header::ECN_ECT0);
  EXPECT_EQ(EcnOf(queue->Dequeue()), ns3::Ipv4Header::ECN_CE);
  EXPECT_EQ(EcnOf(queue->Dequeue()), ns3::Ipv4Header::ECN_NotECT);
}

}  // namespace
}  // namespace sluice
