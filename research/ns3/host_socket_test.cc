#include "research/ns3/host_socket.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ns3/inet-socket-address.h"
#include "ns3/packet.h"
#include "ns3/simulator.h"
#include "research/ns3/network.h"

namespace sluice::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Le;

constexpr uint16_t kPort = 7;
constexpr uint32_t kPacketBytes = 1448;
constexpr uint32_t kWindowBytes = 2 * kPacketBytes;

using Event = ns3::Callback<void, ns3::Ptr<ns3::Socket>>;

// A worker that sends 100 packets as soon as a client connects with a bounded window, over a link of 100 Mbit/s. The
// port has room for five packets, and the worker's link is ten times as fast.
class HostSocketWindowTest : public ::testing::Test {
 protected:
  HostSocketWindowTest() : network_(MakeNetwork()) {
    worker_ = network_->NewSocket(network_->host(0));
    worker_->Bind(ns3::InetSocketAddress(network_->host(0).address, kPort));
    worker_->Listen();
    worker_->SetAcceptCallback(ns3::MakeNullCallback<bool, ns3::Ptr<ns3::Socket>, const ns3::Address&>(),
                               ns3::Callback<void, ns3::Ptr<ns3::Socket>, const ns3::Address&>(
                                   [](ns3::Ptr<ns3::Socket> socket, const ns3::Address&) {
                                     socket->Send(ns3::Create<ns3::Packet>(100 * kPacketBytes));
                                   }));
    client_ = network_->NewSocket(network_->NextAggregatorStack(0));
  }
  ~HostSocketWindowTest() override {
    client_ = nullptr;
    worker_ = nullptr;
    network_ = nullptr;
    ns3::Simulator::Destroy();
  }

  void Connect() {
    client_->Bind();
    client_->SetRecvCallback(Event([this](ns3::Ptr<ns3::Socket>) {
      windows_.push_back(client_->Info().receive_window_bytes.value_or(0));
      // Read in an event of its own, as Ns3Executor does.
      if (reads_) ns3::Simulator::ScheduleNow(&HostSocketWindowTest::Read, this);
    }));
    client_->Connect(ns3::InetSocketAddress(network_->host(0).address, kPort));
  }
  void Read() {
    while (const ns3::Ptr<ns3::Packet> packet = client_->Recv()) {
      if (packet->GetSize() == 0) break;
    }
    windows_.push_back(client_->Info().receive_window_bytes.value_or(0));
  }
  void RunFor(ns3::Time time) {
    ns3::Simulator::Stop(time);
    ns3::Simulator::Run();
  }
  uint64_t received_bytes() const { return client_->Info().received_bytes; }
  uint32_t window_bytes() const { return client_->Info().receive_window_bytes.value_or(0); }

  static std::unique_ptr<Network> MakeNetwork() {
    Network::Options options;
    options.bits_per_second = 100e6;
    options.access_bits_per_second = 1e9;
    options.buffer_bytes = 0;
    options.buffer_packets = 4;
    return *Network::Create(options);
  }

  std::unique_ptr<Network> network_;
  ns3::Ptr<HostSocket> worker_;
  ns3::Ptr<HostSocket> client_;
  bool reads_ = true;
  std::vector<uint32_t> windows_;  // advertised, before and after each read
};

// A full packet takes 0.12 ms on the link, and the window is a little more than a round trip.
TEST_F(HostSocketWindowTest, SlidesWhileItsBytesAreRead) {
  client_->SetReceiveWindow(kWindowBytes);
  Connect();
  RunFor(ns3::MilliSeconds(25));
  EXPECT_EQ(received_bytes(), 100 * kPacketBytes);
  EXPECT_THAT(windows_, Each(Le(kWindowBytes)));
  EXPECT_EQ(window_bytes(), kWindowBytes);
}

TEST_F(HostSocketWindowTest, OfOnePacketSlides) {
  client_->SetReceiveWindow(kPacketBytes);
  Connect();
  RunFor(ns3::MilliSeconds(50));
  EXPECT_EQ(received_bytes(), 100 * kPacketBytes);
  EXPECT_THAT(windows_, Each(Le(kPacketBytes)));
}

TEST_F(HostSocketWindowTest, StopsTheWorkerIfNothingIsRead) {
  client_->SetReceiveWindow(kWindowBytes);
  reads_ = false;
  Connect();
  RunFor(ns3::MilliSeconds(1000));
  EXPECT_EQ(received_bytes(), kWindowBytes);
  EXPECT_EQ(window_bytes(), 0u);
  reads_ = true;
  Read();
  EXPECT_EQ(window_bytes(), kWindowBytes);
  RunFor(ns3::MilliSeconds(25));
  EXPECT_EQ(received_bytes(), 100 * kPacketBytes);
}

TEST_F(HostSocketWindowTest, IsNotTakenBack) {
  client_->SetReceiveWindow(4 * kPacketBytes);
  reads_ = false;
  Connect();
  RunFor(ns3::MicroSeconds(150));  // the connection is open, and the first packet is on its way
  client_->SetReceiveWindow(kPacketBytes);
  RunFor(ns3::MilliSeconds(1000));
  EXPECT_EQ(received_bytes(), 4 * kPacketBytes);
  // Before each packet came. The first and each second one are acknowledged at once.
  EXPECT_THAT(windows_, ElementsAre(4 * kPacketBytes, 3 * kPacketBytes, 3 * kPacketBytes, kPacketBytes));
  reads_ = true;
  windows_.clear();
  Read();
  RunFor(ns3::MilliSeconds(50));
  EXPECT_EQ(received_bytes(), 100 * kPacketBytes);
  EXPECT_THAT(windows_, Each(Le(kPacketBytes)));
}

TEST_F(HostSocketWindowTest, GrowsWithTheNextRead) {
  client_->SetReceiveWindow(kWindowBytes);
  reads_ = false;
  Connect();
  RunFor(ns3::MilliSeconds(1000));
  client_->SetReceiveWindow(4 * kPacketBytes);
  RunFor(ns3::MilliSeconds(1000));
  EXPECT_EQ(received_bytes(), kWindowBytes) << "nothing advertises it";
  Read();
  RunFor(ns3::MilliSeconds(1000));
  EXPECT_EQ(received_bytes(), kWindowBytes + 4 * kPacketBytes);
}

TEST_F(HostSocketWindowTest, RecoversFromLossesWhileItIsFull) {
  client_->SetReceiveWindow(8 * kPacketBytes);
  Connect();
  RunFor(ns3::Seconds(5));
  EXPECT_GT(network_->bottleneck(0).counts().dropped_packets, 0);
  EXPECT_EQ(received_bytes(), 100 * kPacketBytes);
}

}  // namespace
}  // namespace sluice::testing
