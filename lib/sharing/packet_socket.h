#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace google::protobuf {
class MessageLite;
}

// Messages over Unix sockets of the type SOCK_SEQPACKET, which keep their boundaries and tell of the end of a peer at
// once. Nothing here blocks.
namespace sluice {

// InvalidArgument for a path that is empty or too long for a Unix socket; `field` is named.
absl::Status CheckSocketPath(const std::string& field, const std::string& path);

// A socket file that is listened on. Whoever holds PATH.lock owns PATH: a file that a process left that was killed is
// taken over, one that is in use is not. Unlinked at the end.
class ListeningSocket {
 public:
  // FailedPrecondition: another process serves there. PermissionDenied, Unavailable: the file cannot be made, or not be
  // given to the group. It is made with the mode, so nobody can connect before it is protected.
  static absl::StatusOr<ListeningSocket> Open(const std::string& path, mode_t mode, std::optional<gid_t> group);
  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

 private:
  ListeningSocket(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}
  absl::Status Listen(mode_t mode, std::optional<gid_t> group);

  std::string path_;
  int lock_fd_ = -1;
  int fd_ = -1;
  bool bound_ = false;
};

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};

// The caller owns the descriptors. Accept: NotFound when nobody waits. Connect: Unavailable when nobody serves there;
// another error leaves that open.
absl::StatusOr<int> AcceptPacketSocket(int listening_fd);
absl::StatusOr<int> ConnectPacketSocket(const std::string& path);

// As the kernel knows it: who connected.
absl::StatusOr<PeerCredentials> PeerOf(int fd);

// ResourceExhausted: the peer has not taken what it was sent before; nothing was sent. Unavailable: it is gone.
absl::Status SendPacket(int fd, const google::protobuf::MessageLite& message);

// False: nothing is there now. Unavailable: the peer is gone. InvalidArgument: not a message of this kind.
absl::StatusOr<bool> ReceivePacket(int fd, google::protobuf::MessageLite& message);

}  // namespace sluice
