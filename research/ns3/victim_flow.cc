#include "research/ns3/victim_flow.h"

#include <cmath>

#include "ns3/packet.h"
#include "research/ns3/ns3_clock.h"

namespace sluice::testing {
namespace {

constexpr uint16_t kPort = 9;

using Event = ns3::Callback<void, ns3::Ptr<ns3::Socket>>;
using AcceptEvent = ns3::Callback<void, ns3::Ptr<ns3::Socket>, const ns3::Address&>;

int64_t ReceivedBytes(const ns3::Ptr<ns3::Socket>& socket) {
  int64_t bytes = 0;
  while (const ns3::Ptr<ns3::Packet> packet = socket->Recv()) {
    if (packet->GetSize() == 0) break;
    bytes += packet->GetSize();
  }
  return bytes;
}

}  // namespace

struct VictimFlow::Connection {
  ns3::Ptr<HostSocket> sender;
  ns3::Ptr<ns3::Socket> receiver;
  uint16_t port = 0;  // the sender's port
  bool busy = true;   // also until it is connected
  int64_t left_bytes = 0;
  TimePoint arrived;
};

VictimFlow::VictimFlow(Network& network, const Host& from, Dice& dice, const Options& options)
    : network_(network), dice_(dice), options_(options) {
  const Host& to = network_.NextAggregatorStack(0);
  listener_ = network_.NewSocket(to);
  listener_->Bind(ns3::InetSocketAddress(to.address, kPort));
  listener_->Listen();
  listener_->SetAcceptCallback(
      ns3::MakeNullCallback<bool, ns3::Ptr<ns3::Socket>, const ns3::Address&>(),
      AcceptEvent([this](ns3::Ptr<ns3::Socket> socket, const ns3::Address& client) {
        const uint16_t port = ns3::InetSocketAddress::ConvertFrom(client).GetPort();
        for (const auto& connection : connections_) {
          if (connection->port != port) continue;
          connection->receiver = socket;
          connection->busy = false;
          socket->SetRecvCallback(Event([this, &connection = *connection](ns3::Ptr<ns3::Socket> ready) {
            Received(connection, ReceivedBytes(ready));
          }));
        }
      }));
  for (size_t i = 0; i < options_.connections; ++i) {
    connections_.push_back(std::make_unique<Connection>());
    Connection& connection = *connections_.back();
    connection.sender = network_.NewSocket(from);
    connection.sender->Bind();
    ns3::Address local;
    connection.sender->GetSockName(local);
    connection.port = ns3::InetSocketAddress::ConvertFrom(local).GetPort();
    connection.sender->Connect(ns3::InetSocketAddress(to.address, kPort));
  }
}

VictimFlow::~VictimFlow() {
  listener_->SetAcceptCallback(ns3::MakeNullCallback<bool, ns3::Ptr<ns3::Socket>, const ns3::Address&>(),
                               AcceptEvent());
  for (const auto& connection : connections_) {
    if (connection->receiver != nullptr) connection->receiver->SetRecvCallback(Event());
  }
}

void VictimFlow::Start() {
  running_ = true;
  Ns3After(std::chrono::nanoseconds(0), [this] { Arrive(); });
}

void VictimFlow::Arrive() {
  if (!running_) return;
  waiting_.push_back(Ns3Now());
  for (const auto& connection : connections_) {
    if (connection->busy) continue;
    Send(*connection, waiting_.front());
    waiting_.pop_front();
    break;
  }
  const double pause = -std::log1p(-dice_.Fraction()) * static_cast<double>(options_.mean_pause.count());
  Ns3After(std::chrono::nanoseconds(static_cast<int64_t>(pause)), [this] { Arrive(); });
}

void VictimFlow::Send(Connection& connection, TimePoint arrived) {
  connection.busy = true;
  connection.arrived = arrived;
  connection.left_bytes = options_.message_bytes;
  connection.sender->Send(ns3::Create<ns3::Packet>(static_cast<uint32_t>(options_.message_bytes)), 0);
}

void VictimFlow::Received(Connection& connection, int64_t bytes) {
  connection.left_bytes -= bytes;
  if (!connection.busy || connection.left_bytes > 0) return;
  times_.push_back(Seconds(Ns3Now() - connection.arrived).count());
  connection.busy = false;
  if (waiting_.empty()) return;
  Send(connection, waiting_.front());
  waiting_.pop_front();
}

std::vector<double> VictimFlow::Times() const {
  std::vector<double> times = times_;
  const TimePoint now = Ns3Now();
  for (const auto& connection : connections_) {
    if (connection->busy && connection->left_bytes > 0) times.push_back(Seconds(now - connection->arrived).count());
  }
  for (const TimePoint arrived : waiting_) times.push_back(Seconds(now - arrived).count());
  return times;
}

}  // namespace sluice::testing
