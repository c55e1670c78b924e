#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/tcp/tcp_socket.h"

struct mnl_socket;

namespace sluice {

// Reads TCP connections from the kernel, many at once, through NETLINK_SOCK_DIAG (see sock_diag(7)): those of this
// process, or of all processes. It needs no privileges. There is one for each thread that reads. Not thread-safe.
//
// The kernel reports the whole network namespace. A socket belongs to this process if one of its file descriptors has
// the socket's inode. The descriptors are searched only when a new inode appears.
class SocketDiag {
 public:
  // Returns Unavailable if this kernel has no NETLINK_SOCK_DIAG, or a sandbox forbids it.
  static absl::StatusOr<SocketDiag> Open();
  SocketDiag(SocketDiag&&) noexcept;
  SocketDiag& operator=(SocketDiag&&) noexcept;
  ~SocketDiag();

  // Returns the connected sockets, in no order; Unavailable if the kernel did not respond.
  absl::StatusOr<std::vector<TcpSocket>> OwnConnections();

  // Calls `on_slice` with the connected sockets of all processes in this network namespace, a few hundred at a time, as
  // the kernel reports them. The sockets of a slice describe one moment; a look at 10,000 takes 20 ms.
  absl::Status ForEachSlice(absl::FunctionRef<void(absl::Span<const TcpSocket>)> on_slice);

 private:
  struct Closer {
    void operator()(mnl_socket* socket) const;
  };
  explicit SocketDiag(std::unique_ptr<mnl_socket, Closer> socket);

  void KeepOwn(std::vector<TcpSocket>& sockets);

  std::unique_ptr<mnl_socket, Closer> socket_;
  std::vector<char> buffer_;
  std::vector<TcpSocket> slice_;
  uint32_t sequence_ = 0;
  absl::flat_hash_set<uint64_t> own_inodes_;
  absl::flat_hash_set<uint64_t> foreign_inodes_;
};

}  // namespace sluice
