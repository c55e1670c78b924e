#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ns3/inet-socket-address.h"
#include "ns3/packet.h"
#include "ns3/socket.h"

namespace sluice::testing {

// Bytes in order, appended at one end and removed at the other.
class ByteQueue {
 public:
  void Append(const std::string& bytes) { bytes_ += bytes; }
  std::string Take(size_t bytes) {
    std::string taken = bytes_.substr(taken_, bytes);
    taken_ += bytes;
    if (2 * taken_ >= bytes_.size()) {
      bytes_.erase(0, taken_);
      taken_ = 0;
    }
    return taken;
  }

 private:
  std::string bytes_;
  size_t taken_ = 0;
};

// The bytes written on one TCP connection and not yet read at the other side. The packets of ns-3 carry the same number
// of bytes without content. TCP delivers in order and once, so the result is the same, and much faster. One for each
// connection. Not thread-safe.
struct TcpWire {
  ByteQueue to_worker;
  ByteQueue to_client;
};

inline void WriteTo(const ns3::Ptr<ns3::Socket>& socket, ByteQueue& wire, const std::string& bytes) {
  wire.Append(bytes);
  socket->Send(ns3::Create<ns3::Packet>(static_cast<uint32_t>(bytes.size())));
}

inline std::string ReadFrom(const ns3::Ptr<ns3::Socket>& socket, ByteQueue& wire) {
  size_t bytes = 0;
  while (const ns3::Ptr<ns3::Packet> packet = socket->Recv()) {
    if (packet->GetSize() == 0) break;
    bytes += packet->GetSize();
  }
  return bytes > 0 ? wire.Take(bytes) : "";
}

// Finds the wire of a connection that a worker accepts, by the client's address. One for each simulation. Not
// thread-safe.
class TcpWires {
 public:
  std::shared_ptr<TcpWire> Make(ns3::Ipv4Address client, uint16_t port) {
    return wires_[{client.Get(), port}] = std::make_shared<TcpWire>();
  }
  std::shared_ptr<TcpWire> Take(const ns3::Address& client) {
    const ns3::InetSocketAddress address = ns3::InetSocketAddress::ConvertFrom(client);
    auto wire = wires_.extract({address.GetIpv4().Get(), address.GetPort()});
    return wire.empty() ? nullptr : std::move(wire.mapped());
  }

 private:
  std::map<std::pair<uint32_t, uint16_t>, std::shared_ptr<TcpWire>> wires_;
};

}  // namespace sluice::testing
