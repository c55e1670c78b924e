#include "lib/tcp/tcp_connection.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace sluice {
namespace {

// An idle connection is probed after 5 to 7 s, then every second. Linux ends it at the first probe that is due after a
// silence as long as the user timeout. With a user timeout Linux ignores TCP_KEEPCNT; it is for other kernels, where it
// makes 8 to 10 s. The connection therefore ends 9 s after the last received packet, with 2 to 4 unacknowledged probes,
// of which one may be lost. A connection with unacknowledged bytes ends 9 s after they were sent. With the kernel's
// ticks and this thread's wake-up this is within 10 s.
//
// Linux counts bytes that wait for a closed window as unacknowledged, too. A worker must read its requests, so that is
// right for workers. A client may be in a debugger, or read a download slowly, so its socket has no user timeout
// (LetStall). TCP_KEEPCNT then applies to an idle connection, and the writer bounds how long its bytes wait.
//
// The idle time varies between connections: the connections of a thousand workers become idle together, with the last
// response of a block. Acknowledgements of simultaneous probes would meet in the port's buffer.
//
// Rejected: HTTP/2 PING for idle connections. A gRPC server accepts one PING in five minutes while no call is open, and
// ends the connection of a client that sends more. TCP probes are invisible above TCP. Only a PING sees that a process
// is frozen: lib/link/silence_watch.h sends one while a call is out.
constexpr int kQuietSeconds = 5;
constexpr int kQuietChoices = 3;  // 5, 6, 7
constexpr int kProbeSeconds = 1;
constexpr int kProbes = 3;
constexpr int kUserTimeoutMilliseconds = 9000;

// SO_ORIGINAL_DST of linux/netfilter_ipv4.h, and IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv6/ip6_tables.h: these do
// not compile with netinet/in.h.
constexpr int kSoOriginalDestination = 80;

void Set(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

int Get(int fd, int level, int option) {
  int value = 0;
  socklen_t size = sizeof(value);
  return getsockopt(fd, level, option, &value, &size) == 0 ? value : 0;
}

TcpEndpoint EndpointOf(const sockaddr_storage& storage) {
  if (storage.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &storage, sizeof(v4));
    return {boost::asio::ip::address_v4(ntohl(v4.sin_addr.s_addr)), ntohs(v4.sin_port)};
  }
  sockaddr_in6 v6;
  std::memcpy(&v6, &storage, sizeof(v6));
  boost::asio::ip::address_v6::bytes_type bytes;
  std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
  const boost::asio::ip::address_v6 address(bytes, v6.sin6_scope_id);
  if (address.is_v4_mapped()) return {make_address_v4(boost::asio::ip::v4_mapped, address), ntohs(v6.sin6_port)};
  return {address, ntohs(v6.sin6_port)};
}

}  // namespace

void SetUpTcp(int fd, double random, int receive_buffer_bytes) {
  const int choice = std::clamp(static_cast<int>(random * kQuietChoices), 0, kQuietChoices - 1);
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kQuietSeconds + choice);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMilliseconds);
  Set(fd, SOL_SOCKET, SO_OOBINLINE, 1);  // a tunnel would otherwise lose an urgent byte (RFC 6093, section 6)
  if (receive_buffer_bytes > 0) Set(fd, SOL_SOCKET, SO_RCVBUF, receive_buffer_bytes);
}

constexpr double kMostReceiveBufferBytes = 1 << 30;

// Measured between network namespaces (Linux 6.18). The kernel doubles SO_RCVBUF, and a part of that is room for bytes.
// If it has room for a window and a half, a window of one packet does not move after a small packet: what is left of it
// is below a packet, and the sender waits for its probe timer, 200 ms, before each further one. Windows of two and
// three packets then take one more while nobody reads. With room for exactly one window nothing of that happens, or up
// to 1.37. Packets that fill only a part of their memory fit nevertheless, since the kernel collapses them.
//
// From five packets on, one and a half windows come while nobody reads, since packets that lie behind each other share
// their memory.
constexpr double kRoom = 1.125;  // in windows

int ReceiveBufferFor(int window_bytes) {
  return static_cast<int>(kRoom * window_bytes);  // a new connection expects packets to take twice their bytes
}

// Each option alone is not enough: a larger buffer does not raise the clamp that the connection began with, and a clamp
// is overwritten from the buffer. A window that was wider cannot be taken back, and the kernel drops packets that the
// buffer has no room for, so the buffer shrinks only after the clamp has narrowed the window by use.
void ReceiveWindow::Set(int fd, int window_bytes) {
  const int clamp_bytes = Get(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP);
  if (clamp_bytes == clamp_bytes_ && window_bytes == window_bytes_ && wide_bytes_ == 0) return;
  window_bytes_ = window_bytes;
  LearnMemory(fd, clamp_bytes);
  TcpInfo info;
  const double advertised = ReadTcpInfo(fd, info) ? info.receive_window_bytes.value_or(0) : 0;
  wide_bytes_ = advertised > kRoom * window_bytes ? static_cast<int>(advertised) : 0;
  // SO_RCVLOWAT is at most SO_RCVBUF, and must be above the window: see AcknowledgeUnread.
  const double buffer_bytes = std::max(kRoom * memory_, 1.0) * std::max(window_bytes, wide_bytes_) + 1;
  sluice::Set(fd, SOL_SOCKET, SO_RCVBUF, static_cast<int>(std::min(buffer_bytes, kMostReceiveBufferBytes)));
  sluice::Set(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, window_bytes);
  clamp_bytes_ = Get(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP);
}

// When the kernel has seen how much memory the packets take, it overwrites the clamp with the room of the whole buffer
// (Linux 6.18: tcp_measure_rcv_mss). Full packets take 1.6 times their bytes, and those of grpc-go with TLS 3.6 times.
void ReceiveWindow::LearnMemory(int fd, int clamp_bytes) {
  if (clamp_bytes_ == 0 || clamp_bytes <= 0 || clamp_bytes == clamp_bytes_) return;
  // It measures small packets, too, such as those of a handshake, and they do not fill a window.
  TcpInfo info;
  if (!ReadTcpInfo(fd, info) || info.recent_packet_bytes < info.packet_payload_bytes) return;
  memory_ = Get(fd, SOL_SOCKET, SO_RCVBUF) / 2.0 / clamp_bytes;  // the kernel has doubled it
}

// With SO_RCVLOWAT the kernel acknowledges two packets at once, since it thinks that the reader waits for more
// (__tcp_ack_snd_check in net/ipv4/tcp_input.c).
void AcknowledgeUnread(int fd, bool at_once) {
  Set(fd, SOL_SOCKET, SO_RCVLOWAT, at_once ? std::numeric_limits<int>::max() : 1);
}

void LetStall(int fd) {
  Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

// Connection tracking has the original destination of each connection, also of one that was not redirected.
std::optional<TcpEndpoint> OriginalDestination(int fd) {
  sockaddr_storage local{};
  socklen_t local_bytes = sizeof(local);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_bytes) != 0) return std::nullopt;
  const TcpEndpoint own = EndpointOf(local);
  sockaddr_storage original{};
  socklen_t bytes = sizeof(original);
  const int level = own.address().is_v4() ? IPPROTO_IP : IPPROTO_IPV6;
  if (getsockopt(fd, level, kSoOriginalDestination, &original, &bytes) != 0) return std::nullopt;
  const TcpEndpoint destination = EndpointOf(original);
  if (destination == own) return std::nullopt;
  return destination;
}

std::optional<TcpSocket> DescribeTcp(int fd) {
  TcpSocket socket;
  sockaddr_storage local{};
  sockaddr_storage remote{};
  socklen_t local_bytes = sizeof(local);
  socklen_t remote_bytes = sizeof(remote);
  struct stat status {};
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_bytes) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&remote), &remote_bytes) != 0 || fstat(fd, &status) != 0 ||
      (local.ss_family != AF_INET && local.ss_family != AF_INET6)) {
    return std::nullopt;
  }
  socket.inode = status.st_ino;
  socket.local = EndpointOf(local);
  socket.remote = EndpointOf(remote);
  return socket;
}

bool ReadTcpInfo(int fd, TcpInfo& info) {
  std::array<char, 512> data;  // struct tcp_info has some 250 bytes, and grows
  socklen_t bytes = data.size();
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, data.data(), &bytes) != 0) return false;
  info = ParseTcpInfo(data.data(), bytes);
  return true;
}

}  // namespace sluice
