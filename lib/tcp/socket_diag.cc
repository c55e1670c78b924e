#include "lib/tcp/socket_diag.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// States of include/net/tcp_states.h, as bits. Only states with a tcp_info and an owner are listed: not LISTEN, nor the
// two that the kernel keeps after the process has closed its end.
constexpr uint32_t kEstablished = 1U << 1;
constexpr uint32_t kCloseWait = 1U << 8;
// The kernel fills each message up to the reader's buffer; see netlink_dump().
constexpr size_t kBufferBytes = 256 * 1024;

absl::Status ErrnoStatus(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("NETLINK_SOCK_DIAG: ", what, ": ", std::strerror(errno)));
}

TcpEndpoint EndpointOf(uint8_t family, const uint32_t (&words)[4], uint16_t port_network_order) {
  const uint16_t port = ntohs(port_network_order);
  if (family == AF_INET) return {boost::asio::ip::address_v4(ntohl(words[0])), port};
  boost::asio::ip::address_v6::bytes_type bytes;
  static_assert(sizeof(words) == sizeof(bytes));
  std::memcpy(bytes.data(), words, sizeof(bytes));
  const boost::asio::ip::address_v6 address(bytes);
  if (address.is_v4_mapped()) return {make_address_v4(boost::asio::ip::v4_mapped, address), port};
  return {address, port};
}

int OnConnection(const nlmsghdr* header, void* sockets) {
  const auto& message = *static_cast<const inet_diag_msg*>(mnl_nlmsg_get_payload(header));
  TcpSocket socket{.inode = message.idiag_inode,
                   .local = EndpointOf(message.idiag_family, message.id.idiag_src, message.id.idiag_sport),
                   .remote = EndpointOf(message.idiag_family, message.id.idiag_dst, message.id.idiag_dport)};
  // mnl_attr_for_each is avoided because it is valid only in C.
  for (const auto* attribute = static_cast<const nlattr*>(mnl_nlmsg_get_payload_offset(header, sizeof(inet_diag_msg)));
       mnl_attr_ok(attribute, static_cast<const char*>(mnl_nlmsg_get_payload_tail(header)) -
                                  reinterpret_cast<const char*>(attribute));
       attribute = mnl_attr_next(attribute)) {
    const void* payload = mnl_attr_get_payload(attribute);
    const uint16_t type = mnl_attr_get_type(attribute);
    if (type == INET_DIAG_INFO) socket.info = ParseTcpInfo(payload, mnl_attr_get_payload_len(attribute));
    if (type == INET_DIAG_SKMEMINFO) {
      // The receive queue has memory, but no bytes in order that the application could read.
      uint32_t queued_bytes = 0;
      static_assert(SK_MEMINFO_RMEM_ALLOC == 0);
      std::memcpy(&queued_bytes, payload, sizeof(queued_bytes));
      socket.misses_packet = queued_bytes > 0 && message.idiag_rqueue == 0;
    }
  }
  if (socket.inode != 0) static_cast<std::vector<TcpSocket>*>(sockets)->push_back(std::move(socket));
  return MNL_CB_OK;
}

// Inodes of the sockets that this process has open.
absl::flat_hash_set<uint64_t> OpenSockets() {
  absl::flat_hash_set<uint64_t> inodes;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    int descriptor = 0;
    struct stat status {};
    if (absl::SimpleAtoi(entry->path().filename().native(), &descriptor) && fstat(descriptor, &status) == 0 &&
        S_ISSOCK(status.st_mode)) {
      inodes.insert(status.st_ino);
    }
  }
  return inodes;
}

}  // namespace

absl::StatusOr<SocketDiag> SocketDiag::Open() {
  std::unique_ptr<mnl_socket, Closer> socket(mnl_socket_open2(NETLINK_SOCK_DIAG, SOCK_CLOEXEC));
  if (!socket) return ErrnoStatus("cannot open");
  if (mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) < 0) return ErrnoStatus("cannot bind");
  return SocketDiag(std::move(socket));
}

SocketDiag::SocketDiag(std::unique_ptr<mnl_socket, Closer> socket)
    : socket_(std::move(socket)), buffer_(kBufferBytes) {}
SocketDiag::SocketDiag(SocketDiag&&) noexcept = default;
SocketDiag& SocketDiag::operator=(SocketDiag&&) noexcept = default;
SocketDiag::~SocketDiag() = default;

void SocketDiag::Closer::operator()(mnl_socket* socket) const {
  mnl_socket_close(socket);
}

absl::StatusOr<std::vector<TcpSocket>> SocketDiag::OwnConnections() {
  std::vector<TcpSocket> sockets;
  const absl::Status status = ForEachSlice(
      [&sockets](absl::Span<const TcpSocket> slice) { sockets.insert(sockets.end(), slice.begin(), slice.end()); });
  if (!status.ok()) return status;
  KeepOwn(sockets);
  return sockets;
}

// The kernel visits every bucket of its table of connections, a quarter of a million in a host of 24 GB. The older
// request, TCPDIAG_GETSOCK, reports IPv4 and IPv6 in one visit. SOCK_DIAG_BY_FAMILY needs a visit for each.
absl::Status SocketDiag::ForEachSlice(absl::FunctionRef<void(absl::Span<const TcpSocket>)> on_slice) {
  std::array<char, 128> request{};
  nlmsghdr& header = *mnl_nlmsg_put_header(request.data());
  header.nlmsg_type = TCPDIAG_GETSOCK;
  header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  header.nlmsg_seq = ++sequence_;
  auto& body = *static_cast<inet_diag_req*>(mnl_nlmsg_put_extra_header(&header, sizeof(inet_diag_req)));
  body.idiag_ext = (1U << (INET_DIAG_INFO - 1)) | (1U << (INET_DIAG_SKMEMINFO - 1));
  body.idiag_states = kEstablished | kCloseWait;
  if (mnl_socket_sendto(socket_.get(), &header, header.nlmsg_len) < 0) return ErrnoStatus("cannot ask");
  int more = MNL_CB_OK;
  while (more > MNL_CB_STOP) {
    const ssize_t bytes = mnl_socket_recvfrom(socket_.get(), buffer_.data(), buffer_.size());
    if (bytes < 0) return ErrnoStatus("no response");
    slice_.clear();
    more = mnl_cb_run(buffer_.data(), static_cast<size_t>(bytes), sequence_, mnl_socket_get_portid(socket_.get()),
                      OnConnection, &slice_);
    if (more < 0) return ErrnoStatus("refused");
    if (!slice_.empty()) on_slice(slice_);
  }
  return absl::OkStatus();
}

void SocketDiag::KeepOwn(std::vector<TcpSocket>& sockets) {
  const auto known = [this](const TcpSocket& socket) {
    return own_inodes_.contains(socket.inode) || foreign_inodes_.contains(socket.inode);
  };
  if (!std::all_of(sockets.begin(), sockets.end(), known)) {
    own_inodes_ = OpenSockets();
    foreign_inodes_.clear();
    for (const TcpSocket& socket : sockets) {
      if (!own_inodes_.contains(socket.inode)) foreign_inodes_.insert(socket.inode);
    }
  }
  std::erase_if(sockets, [this](const TcpSocket& socket) { return !own_inodes_.contains(socket.inode); });
}

}  // namespace sluice
