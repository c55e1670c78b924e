#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace google::protobuf {
class MessageLite;
}

// Messages over Unix sockets of the type SOCK_SEQPACKET, which keep message boundaries and report the end of a peer at
// once. No function blocks.
namespace sluice {

class PassedSockets;

// Returns InvalidArgument that names `field` if the path is empty or too long for a Unix socket.
absl::Status CheckSocketPath(const std::string& field, const std::string& path);

// A socket file with a listening socket. The process that holds PATH.lock owns PATH. A new process therefore takes over
// the file of a killed process, and never a file in use. The destructor removes the file, unless the socket was passed
// to this process.
class ListeningSocket {
 public:
  // Returns FailedPrecondition if another process serves there; PermissionDenied or Unavailable if the file cannot be
  // made, or cannot be given to the group. The file has its mode from the beginning, so it is never unprotected.
  // A socket of `passed` that is bound to the path is used as it is; null: there are none.
  static absl::StatusOr<ListeningSocket> Open(const std::string& path, mode_t mode, std::optional<gid_t> group,
                                              PassedSockets* passed = nullptr);
  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

 private:
  ListeningSocket(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}
  absl::Status Listen(mode_t mode, std::optional<gid_t> group);
  absl::Status ListenOnPassed(int fd);

  std::string path_;
  int lock_fd_ = -1;
  int fd_ = -1;
  bool bound_ = false;
};

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};

// The caller owns the descriptors. Accept returns NotFound if no connection waits. Connect returns Unavailable if no
// process serves there; after another error a process may serve there.
absl::StatusOr<int> AcceptPacketSocket(int listening_fd);
absl::StatusOr<int> ConnectPacketSocket(const std::string& path);

// The process that connected, as the kernel reports it.
absl::StatusOr<PeerCredentials> PeerOf(int fd);

// Whether a process may believe a daemon that serves on this socket with the user `daemon`: that must be `wanted`, or
// if that is absent root, the own user, or the owner of the socket's folder, who decides who serves there. Otherwise
// returns PermissionDenied.
absl::Status CheckDaemon(const std::string& path, uid_t daemon, std::optional<uid_t> wanted);

// Returns ResourceExhausted, and sends nothing, if the peer has not read earlier messages; Unavailable if it is gone.
absl::Status SendPacket(int fd, const google::protobuf::MessageLite& message);

// Returns false if no message has arrived, Unavailable if the peer is gone, InvalidArgument if the message has another
// type.
absl::StatusOr<bool> ReceivePacket(int fd, google::protobuf::MessageLite& message);

}  // namespace sluice
