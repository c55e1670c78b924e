#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ns3/inet-socket-address.h"
#include "research/ns3/distribution.h"
#include "research/ns3/network.h"
#include "research/ns3/tcp_wire.h"
#include "tests/simulation/faults.h"

namespace sluice::testing {

// A worker on a host of ns-3, which thinks and responds with the requested number of bytes: a gRPC server on Sluice's
// own HTTP/2 session, or a server that speaks the protocol of ByteWorker. One for each address. Not thread-safe.
class Ns3Worker {
 public:
  struct Options {
    Distribution think;
    std::chrono::nanoseconds jitter{0};  // of its host: the maximum delay of each write, uniformly distributed
    bool speaks_bytes = false;           // the protocol of ByteWorker instead of gRPC
  };
  // All of these must outlive the worker.
  Ns3Worker(Network& network, const Host& host, uint16_t port, TcpWires& wires, Dice& dice, const Options& options);
  ~Ns3Worker();
  Ns3Worker(const Ns3Worker&) = delete;
  Ns3Worker& operator=(const Ns3Worker&) = delete;

  ns3::InetSocketAddress address() const { return address_; }

 private:
  class Connection;
  class GrpcConnection;
  class ByteConnection;

  void Accept(const ns3::Ptr<ns3::Socket>& socket, const ns3::Address& client);

  TcpWires& wires_;
  Dice& dice_;
  const Options options_;
  const ns3::InetSocketAddress address_;
  ns3::Ptr<HostSocket> listener_;
  std::vector<std::shared_ptr<Connection>> connections_;
};

}  // namespace sluice::testing
