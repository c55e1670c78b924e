#include "research/ns3/host_socket.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ns3/boolean.h"
#include "ns3/config.h"
#include "ns3/enum.h"
#include "ns3/object-factory.h"
#include "ns3/rtt-estimator.h"
#include "ns3/simulator.h"
#include "ns3/tcp-congestion-ops.h"
#include "ns3/tcp-l4-protocol.h"
#include "ns3/tcp-prr-recovery.h"
#include "ns3/tcp-recovery-ops.h"
#include "ns3/tcp-rx-buffer.h"
#include "ns3/tcp-tx-buffer.h"
#include "ns3/uinteger.h"
#include "research/ns3/bounded_dctcp.h"

namespace sluice::testing {
namespace {

std::string TypeOf(const std::string& variant) {
  if (variant == "Dctcp") return BoundedDctcp::GetTypeId().GetName();
  return absl::StrCat("ns3::Tcp", variant);
}

constexpr uint32_t kMostUnscaledWindowBytes = 65535;

ns3::TimeValue ToValue(absl::Duration duration) {
  return ns3::TimeValue(ns3::NanoSeconds(absl::ToInt64Nanoseconds(duration)));
}

}  // namespace

NS_OBJECT_ENSURE_REGISTERED(HostSocket);

absl::Status SetDefaults(const TcpOptions& options) {
  ns3::TypeId variant;
  if (!ns3::TypeId::LookupByNameFailSafe(TypeOf(options.variant), &variant)) {
    return absl::InvalidArgumentError(absl::StrCat("tcp: ns-3 has no variant \"", options.variant,
                                                   "\"; there are NewReno, LinuxReno, Cubic, Bbr, Dctcp, Vegas"));
  }
  using ns3::Config::SetDefault;
  SetDefault("ns3::TcpSocket::SegmentSize", ns3::UintegerValue(options.SegmentBytes()));
  SetDefault("ns3::TcpSocket::InitialCwnd", ns3::UintegerValue(options.initial_window_segments));
  SetDefault("ns3::TcpSocket::DelAckCount", ns3::UintegerValue(options.acked_segments));
  SetDefault("ns3::TcpSocket::DelAckTimeout", ToValue(options.delayed_ack));
  // The socket must accept all bytes that the application writes.
  SetDefault("ns3::TcpSocket::SndBufSize", ns3::UintegerValue(1u << 30));
  SetDefault("ns3::TcpSocket::RcvBufSize", ns3::UintegerValue(options.receive_buffer_bytes));
  // Linux gives up after about 15 minutes, and ns-3 would after 6 tries.
  SetDefault("ns3::TcpSocket::ConnTimeout", ns3::TimeValue(ns3::Seconds(1)));
  SetDefault("ns3::TcpSocket::ConnCount", ns3::UintegerValue(1000));
  SetDefault("ns3::TcpSocket::DataRetries", ns3::UintegerValue(1000));
  SetDefault("ns3::TcpSocketBase::MinRto", ToValue(options.rto_min));
  SetDefault("ns3::TcpSocketBase::ClockGranularity", ns3::TimeValue(ns3::MicroSeconds(10)));
  SetDefault("ns3::TcpSocketBase::ReTxThreshold", ns3::UintegerValue(options.duplicate_acks));
  SetDefault("ns3::TcpSocketBase::LimitedTransmit", ns3::BooleanValue(options.limited_transmit));
  SetDefault("ns3::TcpSocketBase::Sack", ns3::BooleanValue(options.sack));
  SetDefault("ns3::TcpSocketBase::Timestamp", ns3::BooleanValue(options.timestamps));
  SetDefault("ns3::TcpSocketBase::UseEcn",
             ns3::EnumValue(options.ecn ? ns3::TcpSocketState::On : ns3::TcpSocketState::Off));
  return absl::OkStatus();
}

ns3::TypeId HostSocket::GetTypeId() {
  static const ns3::TypeId type =
      ns3::TypeId("sluice::testing::HostSocket").SetParent<ns3::TcpSocketBase>().AddConstructor<HostSocket>();
  return type;
}

// Does what TcpL4Protocol::CreateSocket does. That function creates only its own kind of sockets.
ns3::Ptr<HostSocket> HostSocket::Create(const ns3::Ptr<ns3::Node>& host, const TcpOptions& options, Dice& dice,
                                        TcpCounts& counts) {
  const auto tcp = host->GetObject<ns3::TcpL4Protocol>();
  const auto socket = ns3::CreateObject<HostSocket>();
  socket->options_ = &options;
  socket->dice_ = &dice;
  socket->counts_ = &counts;
  socket->SetNode(host);
  socket->SetTcp(tcp);
  socket->SetRtt(ns3::CreateObject<ns3::RttMeanDeviation>());
  ns3::ObjectFactory congestion(TypeOf(options.variant));
  socket->SetCongestionControlAlgorithm(congestion.Create<ns3::TcpCongestionOps>());
  socket->SetRecoveryAlgorithm(ns3::CreateObject<ns3::TcpPrrRecovery>());
  tcp->AddSocket(socket);
  socket->MendFullWindow();
  return socket;
}

ns3::Ptr<ns3::TcpSocketBase> HostSocket::Fork() {
  const auto fork = ns3::CopyObject<HostSocket>(this);
  fork->MendFullWindow();
  return fork;
}

// If a packet is lost while the peer's window is full, TcpTxBuffer of ns-3 3.37 offers a next segment of 0 bytes, and
// the socket crashes when it sends it.
void HostSocket::MendFullWindow() {
  m_txBuffer->SetRWndCallback(
      ns3::Callback<uint32_t>([this] { return UnAckDataCount() < m_rWnd.Get() ? m_rWnd.Get() : 0; }));
}

// TcpSocketBase calculates m_rto here, or leaves it as it is.
void HostSocket::EstimateRtt(const ns3::TcpHeader& header) {
  if (options_->rto_random_share == 0) return TcpSocketBase::EstimateRtt(header);
  m_rto = m_rto.Get() / ns3::int64x64_t(timeout_factor_);
  timeout_factor_ = 1;
  TcpSocketBase::EstimateRtt(header);
  DrawTimeout();
}

void HostSocket::ReTxTimeout() {
  if (counts_ != nullptr && m_txBuffer->HeadSequence() < m_tcb->m_highTxMark) ++counts_->retransmission_timeouts;
  if (options_->rto_random_share > 0) DrawTimeout();  // TcpSocketBase then doubles it and starts the timer
  TcpSocketBase::ReTxTimeout();
}

void HostSocket::DrawTimeout() {
  const double factor = 1 + options_->rto_random_share * dice_->Fraction();
  m_rto = m_rto.Get() * ns3::int64x64_t(factor / timeout_factor_);
  timeout_factor_ = factor;
}

void HostSocket::ReceivedData(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& header) {
  if (packet->GetSize() > 0) {
    last_received_ = ns3::Simulator::Now();
    received_bytes_ += packet->GetSize();
    if (header.GetSequenceNumber() > m_tcb->m_rxBuffer->NextRxSequence()) ++out_of_order_packets_;
  }
  TcpSocketBase::ReceivedData(packet, header);
}

uint32_t HostSocket::SendDataPacket(ns3::SequenceNumber32 sequence, uint32_t most_bytes, bool with_ack) {
  last_sent_ = ns3::Simulator::Now();
  return TcpSocketBase::SendDataPacket(sequence, most_bytes, with_ack);
}

void HostSocket::SetReceiveWindow(uint32_t bytes) {
  if (window_bytes_ == 0) SetRcvBufSize(kMostUnscaledWindowBytes);
  window_bytes_ = static_cast<int32_t>(std::min(bytes, kMostUnscaledWindowBytes));
}

int32_t HostSocket::UnreadBytes() const {
  return static_cast<int32_t>(m_tcb->m_rxBuffer->Available());
}

// The attribute RcvBufSize of ns-3 bounds the window, too, but takes the edge back if it shrinks.
uint16_t HostSocket::AdvertisedWindowSize(bool scale) const {
  if (window_bytes_ == 0) return TcpSocketBase::AdvertisedWindowSize(scale);
  const ns3::SequenceNumber32 first_unread = m_tcb->m_rxBuffer->NextRxSequence() - UnreadBytes();
  window_edge_ = std::max(window_edge_, first_unread + window_bytes_);
  advertised_bytes_ = static_cast<uint16_t>(std::max(window_edge_ - m_tcb->m_rxBuffer->NextRxSequence(), 0));
  return advertised_bytes_;
}

// ns-3 does not advertise the room that a read makes until it acknowledges further packets, so a window of a few
// packets stops. Linux advertises it if the window then is at least twice as large (tcp_cleanup_rbuf).
ns3::Ptr<ns3::Packet> HostSocket::Recv(uint32_t most_bytes, uint32_t flags) {
  ns3::Ptr<ns3::Packet> packet = TcpSocketBase::Recv(most_bytes, flags);
  if (window_bytes_ == 0 || packet == nullptr) return packet;
  const int32_t room_bytes = window_bytes_ - UnreadBytes();
  const int32_t left_bytes = window_edge_ - m_tcb->m_rxBuffer->NextRxSequence();
  const bool narrow = 2 * left_bytes <= window_bytes_;
  if (narrow && room_bytes > 0 && room_bytes >= 2 * left_bytes) SendEmptyPacket(ns3::TcpHeader::ACK);
  return packet;
}

TcpInfo HostSocket::Info() const {
  const auto to_duration = [](ns3::Time time) { return absl::Nanoseconds(time.GetNanoSeconds()); };
  TcpInfo info;
  info.unacknowledged_packets = (UnAckDataCount() + GetSegSize() - 1) / GetSegSize();
  info.congestion_window_packets = m_tcb->m_cWnd / GetSegSize();
  info.smoothed_rtt = to_duration(m_rtt->GetEstimate());
  if (m_tcb->m_minRtt < ns3::Time::Max()) info.min_rtt = to_duration(m_tcb->m_minRtt);
  info.since_data_sent = to_duration(ns3::Simulator::Now() - last_sent_);
  info.out_of_order_packets = out_of_order_packets_;
  info.received_bytes = received_bytes_;
  info.since_data_received = to_duration(ns3::Simulator::Now() - last_received_);
  info.packet_payload_bytes = GetSegSize();
  if (window_bytes_ > 0) {
    info.receive_window_bytes = advertised_bytes_;
    info.recent_packet_bytes = GetSegSize();
  }
  return info;
}

}  // namespace sluice::testing
