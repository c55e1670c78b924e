#include "lib/sharing/packet_socket.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <google/protobuf/message_lite.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "lib/net/passed_sockets.h"

namespace sluice {
namespace {

constexpr size_t kMaxPacketBytes = 1024;
constexpr int kBacklog = 64;

absl::Status Failed(const std::string& what, const std::string& path) {
  return absl::UnavailableError(absl::StrCat(what, " ", path, ": ", std::strerror(errno)));
}

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

int NewSocket() {
  return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

}  // namespace

absl::Status CheckSocketPath(const std::string& field, const std::string& path) {
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty()) return absl::InvalidArgumentError(absl::StrCat(field, " is empty; give a path"));
  if (path.size() <= kLongest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", path, " has ", path.size(),
                                                 " bytes; the path of a Unix socket has at most ", kLongest));
}

absl::StatusOr<ListeningSocket> ListeningSocket::Open(const std::string& path, mode_t mode, std::optional<gid_t> group,
                                                      PassedSockets* passed) {
  const std::string lock_path = path + ".lock";
  const int lock_fd = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_fd < 0) return Failed("cannot open", lock_path);
  ListeningSocket listening(path, lock_fd);
  if (flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Failed("cannot lock", lock_path);
    return absl::FailedPreconditionError(absl::StrCat("another process serves on ", path));
  }
  std::optional<int> fd;
  if (passed != nullptr) fd = passed->Take("unix:" + path, SOCK_SEQPACKET);
  absl::Status listens = fd.has_value() ? listening.ListenOnPassed(*fd) : listening.Listen(mode, group);
  if (!listens.ok()) return listens;
  return listening;
}

absl::Status ListeningSocket::Listen(mode_t mode, std::optional<gid_t> group) {
  struct stat found {};
  if (lstat(path_.c_str(), &found) == 0 && !S_ISSOCK(found.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path_, " is there and is not a socket"));
  }
  unlink(path_.c_str());
  fd_ = NewSocket();
  if (fd_ < 0) return Failed("cannot make a socket for", path_);
  // Set the mode of the descriptor before bind: bind gives it to the file, which therefore never lacks it.
  if (fchmod(fd_, mode) != 0) return Failed("cannot set the mode of", path_);
  const sockaddr_un address = AddressOf(path_);
  if (bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return Failed("cannot bind", path_);
  bound_ = true;
  constexpr auto kSameUser = static_cast<uid_t>(-1);
  if (group.has_value() && chown(path_.c_str(), kSameUser, *group) != 0)
    return Failed("cannot set the group of", path_);
  // Set the mode again, because bind applied the umask.
  if (chmod(path_.c_str(), mode) != 0) return Failed("cannot set the mode of", path_);
  if (listen(fd_, kBacklog) != 0) return Failed("cannot listen on", path_);
  return absl::OkStatus();
}

// Processes check the user of the daemon. The kernel shows them the process that has called listen last: that would be
// the starter.
absl::Status ListeningSocket::ListenOnPassed(int fd) {
  fd_ = fd;
  const int flags = fcntl(fd_, F_GETFL);
  if (flags < 0 || fcntl(fd_, F_SETFL, flags | O_NONBLOCK) != 0)
    return Failed("cannot accept without waiting on", path_);
  if (listen(fd_, SOMAXCONN) != 0) return Failed("cannot listen on", path_);
  return absl::OkStatus();
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : path_(std::move(other.path_)),
      lock_fd_(std::exchange(other.lock_fd_, -1)),
      fd_(std::exchange(other.fd_, -1)),
      bound_(std::exchange(other.bound_, false)) {}

// Releases the lock last: until then this process owns the file.
ListeningSocket::~ListeningSocket() {
  if (bound_) unlink(path_.c_str());
  if (fd_ >= 0) close(fd_);
  if (lock_fd_ >= 0) close(lock_fd_);
}

absl::StatusOr<int> AcceptPacketSocket(int listening_fd) {
  const int fd = accept4(listening_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) return fd;
  if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) return absl::NotFoundError("nobody waits");
  return absl::UnavailableError(absl::StrCat("accept: ", std::strerror(errno)));
}

absl::StatusOr<int> ConnectPacketSocket(const std::string& path) {
  const int fd = NewSocket();
  if (fd < 0) return Failed("cannot make a socket for", path);
  const sockaddr_un address = AddressOf(path);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  const bool nobody_serves = errno == ENOENT || errno == ECONNREFUSED;
  absl::Status failed = Failed("cannot connect to", path);
  close(fd);
  if (!nobody_serves) return absl::FailedPreconditionError(failed.message());
  return failed;
}

absl::StatusOr<PeerCredentials> PeerOf(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return absl::UnavailableError(absl::StrCat("SO_PEERCRED: ", std::strerror(errno)));
  }
  return PeerCredentials{.pid = credentials.pid, .uid = credentials.uid};
}

absl::Status CheckDaemon(const std::string& path, uid_t daemon, std::optional<uid_t> wanted) {
  if (wanted.has_value()) {
    if (daemon == *wanted) return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrCat("the daemon at ", path, " has uid ", daemon, "; daemon_uid is ", *wanted));
  }
  if (daemon == 0 || daemon == geteuid()) return absl::OkStatus();
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct stat found {};
  if (stat(folder.c_str(), &found) == 0 && found.st_uid == daemon) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("the daemon at ", path, " has uid ", daemon,
                                                  ", which is neither root, nor this user, nor the owner of ", folder,
                                                  "; set daemon_uid if that is right"));
}

absl::Status SendPacket(int fd, const google::protobuf::MessageLite& message) {
  const std::string bytes = message.SerializeAsString();
  if (send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return absl::OkStatus();
  if (errno == EAGAIN || errno == ENOBUFS || errno == EINTR) return absl::ResourceExhaustedError("the peer is slow");
  return absl::UnavailableError(absl::StrCat("send: ", std::strerror(errno)));
}

absl::StatusOr<bool> ReceivePacket(int fd, google::protobuf::MessageLite& message) {
  std::array<char, kMaxPacketBytes> bytes;
  ssize_t size = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_TRUNC);
  // The peer closed before it read everything. The kernel reports that error once, before the peer's last messages, so
  // read again.
  if (size < 0 && errno == ECONNRESET) size = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size < 0) return absl::UnavailableError(absl::StrCat("receive: ", std::strerror(errno)));
  // Messages are never empty, so size 0 is the end of the connection.
  if (size == 0) return absl::UnavailableError("the peer is gone");
  if (static_cast<size_t>(size) > bytes.size() || !message.ParseFromArray(bytes.data(), static_cast<int>(size))) {
    return absl::InvalidArgumentError(absl::StrCat("a packet of ", size, " bytes is not ", message.GetTypeName()));
  }
  return true;
}

}  // namespace sluice
