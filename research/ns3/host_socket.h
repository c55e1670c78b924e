#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/tcp/tcp_info.h"
#include "ns3/node.h"
#include "ns3/tcp-socket-base.h"
#include "tests/simulation/faults.h"

namespace sluice::testing {

// The TCP settings of all hosts of a network. The defaults are those of Linux.
struct TcpOptions {
  std::string variant = "Cubic";  // a name in ns-3: NewReno, LinuxReno, Cubic, Bbr, Dctcp, Vegas, ...
  absl::Duration rto_min = absl::Milliseconds(200);
  // Each timeout is longer by a random share of up to this, so that flows do not retransmit together (Vasudevan et al.,
  // SIGCOMM 2009). Linux has no such setting.
  double rto_random_share = 0;
  absl::Duration delayed_ack = absl::Milliseconds(40);
  uint32_t acked_segments = 2;  // segments per ACK; 1: no delayed ACKs
  uint32_t initial_window_segments = 10;
  uint32_t duplicate_acks = 3;  // number that triggers a fast retransmit
  bool limited_transmit = true;
  bool sack = true;
  bool timestamps = true;
  bool ecn = false;
  uint32_t mtu_bytes = 1500;
  uint32_t receive_buffer_bytes = 6u << 20;

  uint32_t SegmentBytes() const { return mtu_bytes - 40 - (timestamps ? 12 : 0); }
};

// Counts of all TCP connections of a network.
struct TcpCounts {
  int64_t retransmission_timeouts = 0;  // with data to repeat, including each one of a back-off
};

// Sets these options as the defaults of ns-3. Returns InvalidArgument if ns-3 lacks the variant.
absl::Status SetDefaults(const TcpOptions& options);

// A TCP socket of ns-3 that counts the events that Linux counts, and whose receive window can be bounded as in Linux.
// Sockets that a listening socket accepts count, too. One for each connection. Not thread-safe.
class HostSocket final : public ns3::TcpSocketBase {
 public:
  static ns3::TypeId GetTypeId();
  // The options, the dice and the counts must outlive the socket.
  static ns3::Ptr<HostSocket> Create(const ns3::Ptr<ns3::Node>& host, const TcpOptions& options, Dice& dice,
                                     TcpCounts& counts);

  // Bounds the receive window, as lib/tcp/tcp_connection.h does in Linux. Call it before Connect for the first time, so
  // that the connection has no window scale. The largest window is therefore 65,535 bytes.
  void SetReceiveWindow(uint32_t bytes);
  // Returns the parts of Linux's TCP_INFO that Sluice uses.
  TcpInfo Info() const;

  ns3::Ptr<ns3::Packet> Recv(uint32_t most_bytes, uint32_t flags) override;
  using ns3::Socket::Recv;

  HostSocket() = default;
  HostSocket(const HostSocket&) = default;

 private:
  ns3::Ptr<ns3::TcpSocketBase> Fork() override;
  void EstimateRtt(const ns3::TcpHeader& header) override;
  void ReTxTimeout() override;
  void ReceivedData(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& header) override;
  uint32_t SendDataPacket(ns3::SequenceNumber32 sequence, uint32_t most_bytes, bool with_ack) override;
  uint16_t AdvertisedWindowSize(bool scale) const override;

  int32_t UnreadBytes() const;

  void MendFullWindow();
  // Replaces the random part of the timeout.
  void DrawTimeout();

  const TcpOptions* options_ = nullptr;
  Dice* dice_ = nullptr;
  TcpCounts* counts_ = nullptr;
  double timeout_factor_ = 1;  // that m_rto contains
  ns3::Time last_sent_;
  ns3::Time last_received_;
  uint64_t received_bytes_ = 0;
  uint32_t out_of_order_packets_ = 0;
  int32_t window_bytes_ = 0;                      // 0: as ns-3 has it
  mutable ns3::SequenceNumber32 window_edge_{0};  // the peer may send up to here; it never moves back
  mutable uint16_t advertised_bytes_ = 0;         // by the last packet that was sent
};

}  // namespace sluice::testing
