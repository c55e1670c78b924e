#include "lib/net/passed_sockets.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/net/socket_address.h"

namespace sluice {
namespace {

constexpr char kCount[] = "LISTEN_FDS";
constexpr char kProcess[] = "LISTEN_PID";
constexpr char kNames[] = "LISTEN_FDNAMES";
constexpr int kMaxSockets = 1024;

// Returns the value of a variable and removes it.
std::optional<std::string> TakeVariable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  std::string taken = value;
  unsetenv(name);
  return taken;
}

absl::StatusOr<int> ParseNumber(const char* variable, const std::string& text, int most) {
  int number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= 0 && number <= most) return number;
  return absl::InvalidArgumentError(
      absl::StrCat(variable, " is \"", text, "\"; it must be a number from 0 to ", most, ": see sd_listen_fds(3)"));
}

int SocketOption(int fd, int option, int level = SOL_SOCKET) {
  int value = 0;
  socklen_t size = sizeof(value);
  return getsockopt(fd, level, option, &value, &size) == 0 ? value : -1;
}

absl::StatusOr<std::string> ListeningAddress(int fd, int type, const std::string& name) {
  const std::string described = absl::StrCat(kCount, ": descriptor ", fd, ", \"", name, "\", ");
  if ((type != SOCK_STREAM && type != SOCK_SEQPACKET) || SocketOption(fd, SO_ACCEPTCONN) != 1) {
    return absl::FailedPreconditionError(absl::StrCat(described,
                                                      "is not a listening socket of streams or packets; a unit must "
                                                      "have ListenStream= or ListenSequentialPacket=, and Accept=no"));
  }
  boost::asio::generic::stream_protocol::endpoint bound;
  auto size = static_cast<socklen_t>(bound.capacity());
  if (getsockname(fd, bound.data(), &size) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(described, "has no address"));
  }
  bound.resize(size);
  return FormatSocketAddress(bound);
}

// Returns the address of a config in the notation of FormatSocketAddress.
std::string Canonical(const std::string& address) {
  const auto parsed = ParseSocketAddress(address, SocketUse::kListen);
  if (parsed.ok()) return FormatSocketAddress(*parsed);
  const auto resolved = ResolveListenAddress(address);
  return resolved.ok() ? FormatSocketAddress(*resolved) : address;  // the listener returns the error
}

}  // namespace

absl::StatusOr<std::unique_ptr<PassedSockets>> PassedSockets::FromEnvironment(int first) {
  std::unique_ptr<PassedSockets> passed(new PassedSockets);
  const std::optional<std::string> count_text = TakeVariable(kCount);
  const std::optional<std::string> process_text = TakeVariable(kProcess);
  const std::vector<std::string> names = absl::StrSplit(TakeVariable(kNames).value_or(""), ':');
  if (!count_text.has_value() || !process_text.has_value()) return passed;
  const absl::StatusOr<int> process = ParseNumber(kProcess, *process_text, std::numeric_limits<int>::max());
  if (!process.ok()) return process.status();
  if (*process != getpid()) return passed;
  const absl::StatusOr<int> count = ParseNumber(kCount, *count_text, kMaxSockets);
  if (!count.ok()) return count.status();
  for (int i = 0; i < *count; ++i) {
    const int fd = first + i;
    const std::string name = static_cast<size_t>(i) < names.size() ? names[i] : "";
    const int type = SocketOption(fd, SO_TYPE);
    absl::StatusOr<std::string> address = ListeningAddress(fd, type, name);
    if (!address.ok()) return address.status();
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    passed->sockets_.push_back({.fd = fd,
                                .type = type,
                                .address = *std::move(address),
                                .name = name,
                                .both_families = SocketOption(fd, IPV6_V6ONLY, IPPROTO_IPV6) == 0});
  }
  return passed;
}

PassedSockets::~PassedSockets() {
  for (const Socket& socket : sockets_) close(socket.fd);
}

std::vector<PassedSockets::Socket>::const_iterator PassedSockets::Find(const std::vector<Socket>& sockets,
                                                                       const std::string& address, int type) {
  return std::find_if(sockets.begin(), sockets.end(), [&](const Socket& socket) {
    if (socket.type != type) return false;
    absl::string_view port = socket.address;
    return socket.address == address ||
           (socket.both_families && absl::ConsumePrefix(&port, "[::]:") && address == absl::StrCat("0.0.0.0:", port));
  });
}

std::optional<int> PassedSockets::Take(const std::string& address, int type) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = Find(sockets_, address, type);
  if (found == sockets_.end()) return std::nullopt;
  const int fd = found->fd;
  sockets_.erase(found);
  return fd;
}

absl::Status PassedSockets::Check(std::vector<Configured> config) const {
  std::erase_if(config, [](const Configured& configured) { return configured.address.empty(); });
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Socket> left = sockets_;
  for (const Configured& configured : config) {
    const auto found = Find(left, Canonical(configured.address), configured.type);
    if (found != left.end()) left.erase(found);
  }
  if (left.empty()) return absl::OkStatus();
  const auto described = [](const std::string& address, int type) {
    return absl::StrCat(address, type == SOCK_SEQPACKET ? " of packets" : "");
  };
  const std::string passed = absl::StrJoin(left, ", ", [&](std::string* out, const Socket& socket) {
    absl::StrAppend(out, described(socket.address, socket.type));
    if (!socket.name.empty()) absl::StrAppend(out, " (", socket.name, ")");
  });
  const std::string wanted = absl::StrJoin(config, ", ", [&](std::string* out, const Configured& configured) {
    absl::StrAppend(out, configured.field, " ", described(configured.address, configured.type));
  });
  return absl::FailedPreconditionError(
      absl::StrCat(kCount, ": ", passed, " passed by the starter of this process, but not in the config, which has ",
                   wanted, "; give the same addresses in the .socket unit and in the config"));
}

}  // namespace sluice
