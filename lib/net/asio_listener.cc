#include "lib/net/asio_listener.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fcntl.h>
#include <ifaddrs.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/net/asio_stream.h"
#include "lib/net/host_port.h"
#include "lib/net/socket_address.h"
#include "lib/net/worker_address.h"
#include "lib/tcp/tcp_connection.h"

namespace sluice {
namespace {

using boost::asio::generic::stream_protocol;

// Pause after an accept that lacked a file descriptor, and after other errors of the kernel.
constexpr std::chrono::milliseconds kPause{100};

struct Place {
  stream_protocol::endpoint endpoint;
  std::string path;  // of a Unix socket in the file system
  bool tcp = false;
};

absl::StatusOr<Place> PlaceOf(const std::string& address) {
  const absl::StatusOr<stream_protocol::endpoint> endpoint = ParseSocketAddress(address, SocketUse::kListen);
  if (!endpoint.ok()) return endpoint.status();
  absl::string_view path = address;
  if (!absl::ConsumePrefix(&path, "unix:")) path = "";
  return Place{.endpoint = *endpoint, .path = std::string(path), .tcp = !IsUnixAddress(address)};
}

// A killed process leaves its socket behind, and a connection to it is refused. A connection to any other file is
// refused, too.
void RemoveDeadSocket(const Place& place) {
  struct stat status {};
  if (lstat(place.path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  const int failed = connect(fd, place.endpoint.data(), static_cast<socklen_t>(place.endpoint.size()));
  const bool dead = failed != 0 && errno == ECONNREFUSED;
  close(fd);
  if (dead) unlink(place.path.c_str());
}

// Identifies the file at a path: its device and its inode.
std::pair<dev_t, ino_t> FileAt(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

boost::asio::ip::tcp::endpoint TcpEndpointOf(const stream_protocol::endpoint& endpoint) {
  boost::asio::ip::tcp::endpoint tcp;
  std::memcpy(tcp.data(), endpoint.data(), endpoint.size());
  return tcp;
}

// IPv4 for an address of IPv4 in IPv6.
boost::asio::ip::tcp::endpoint Unmapped(const boost::asio::ip::tcp::endpoint& endpoint) {
  const auto address = endpoint.address();
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return endpoint;
  return {make_address_v4(boost::asio::ip::v4_mapped, address.to_v6()), endpoint.port()};
}

absl::Status Unavailable(const std::string& address, absl::string_view what, const boost::system::error_code& error) {
  return absl::UnavailableError(absl::StrCat("cannot ", what, " ", address, ": ", error.message()));
}

}  // namespace

class AsioListener::Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  Acceptor(AsioExecutor& executor, Options options, OnAccept on_accept)
      : executor_(executor),
        options_(std::move(options)),
        on_accept_(std::move(on_accept)),
        acceptor_(executor.context()),
        pause_(executor.context()) {}

  absl::StatusOr<std::string> Open(const std::string& address, const Place& place) {
    boost::system::error_code error;
    is_tcp_ = place.tcp;
    if (const std::optional<int> passed = TakePassed(place)) {
      acceptor_.assign(place.endpoint.protocol(), *passed, error);
      if (error) return Unavailable(address, "listen on", error);
      return Begin(address);
    }
    acceptor_.open(place.endpoint.protocol(), error);
    if (error) return Unavailable(address, "open a socket for", error);
    if (place.tcp) acceptor_.set_option(boost::asio::socket_base::reuse_address(true), error);
    if (!place.path.empty()) RemoveDeadSocket(place);
    // bind gives the file the mode of the socket, less the umask of the process. Therefore nobody without permission
    // can connect, not even before fchmodat.
    if (!place.path.empty()) fchmod(acceptor_.native_handle(), options_.unix_mode);
    acceptor_.bind(place.endpoint, error);
    if (error) return Unavailable(address, "listen on", error);
    if (!place.path.empty()) {
      path_ = place.path;
      file_ = FileAt(path_);
      if (fchmodat(AT_FDCWD, path_.c_str(), options_.unix_mode, AT_SYMLINK_NOFOLLOW) != 0) {
        return Unavailable(address, "set the mode of", {errno, boost::system::system_category()});
      }
    }
    acceptor_.listen(boost::asio::socket_base::max_listen_connections, error);
    if (error) return Unavailable(address, "listen on", error);
    return Begin(address);
  }

  // Takes effect when the handler of an accepted connection returns.
  void Pause(std::chrono::milliseconds time) { paused_for_ = time; }

  // Rejected: acceptor_.close, after which Asio's epoll still reports connections to a socket that other processes
  // hold.
  void Stop() {
    if (!acceptor_.is_open()) return;
    boost::system::error_code ignored;
    close(acceptor_.release(ignored));
    pause_.cancel();
  }

  void Close() {
    on_accept_ = nullptr;
    Stop();
    // A process that was started since may have put its own socket there.
    if (!path_.empty() && FileAt(path_) == file_) unlink(path_.c_str());
  }

 private:
  std::optional<int> TakePassed(const Place& place) const {
    return options_.passed == nullptr ? std::nullopt : options_.passed->Take(FormatSocketAddress(place.endpoint));
  }

  // Returns the address with the real port.
  std::string Begin(const std::string& address) {
    boost::system::error_code error;
    acceptor_.native_non_blocking(true, error);
    std::string bound = address;
    if (is_tcp_) bound = FormatSocketAddress(TcpEndpointOf(acceptor_.local_endpoint(error)));
    Accept();
    return bound;
  }

  void Accept() {
    if (!acceptor_.is_open()) return;
    if (paused_for_.count() > 0) return AcceptAfter(std::exchange(paused_for_, std::chrono::milliseconds(0)));
    acceptor_.async_accept(
        [self = shared_from_this()](const boost::system::error_code& error, stream_protocol::socket socket) {
          if (self->on_accept_ == nullptr) return;
          if (!error) {
            self->Take(std::move(socket));
            return self->Accept();
          }
          if (!self->acceptor_.is_open()) return;
          self->AcceptAfter(kPause);
        });
  }

  void AcceptAfter(std::chrono::milliseconds time) {
    pause_.expires_after(time);
    pause_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
      if (!cancelled) self->Accept();
    });
  }

  void Take(stream_protocol::socket socket) {
    AcceptedConnection connection;
    connection.peer = "a client";
    if (is_tcp_) {
      boost::system::error_code error;
      const auto remote = socket.remote_endpoint(error);
      if (error) return;  // the client has closed the connection
      const boost::asio::ip::tcp::endpoint peer = Unmapped(TcpEndpointOf(remote));
      connection.peer = FormatSocketAddress(peer);
      // A client on this host whose connection was redirected comes from the address of an interface, to loopback.
      const boost::asio::ip::tcp::endpoint own = Unmapped(TcpEndpointOf(socket.local_endpoint(error)));
      connection.local = peer.address().is_loopback() || own.address().is_loopback();
      if (options_.redirected) {
        const std::optional<TcpEndpoint> original = OriginalDestination(socket.native_handle());
        if (original.has_value()) connection.original = FormatSocketAddress(*original);
      }
    } else {
      connection.local = true;
      ucred credentials{};
      socklen_t size = sizeof(credentials);
      if (getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0) {
        connection.client = credentials.uid;
      }
    }
    const auto shared = std::make_shared<stream_protocol::socket>(std::move(socket));
    connection.start = [this, self = shared_from_this(), shared, peer = connection.peer](StreamSocketEvents& events) {
      return AcceptStream(executor_, std::move(*shared), peer, options_.tls, options_.half_open, events);
    };
    connection.release = [shared, tcp = is_tcp_] {
      boost::system::error_code ignored;
      if (tcp) shared->set_option(boost::asio::ip::tcp::no_delay(true), ignored);
      shared->native_non_blocking(true, ignored);
      const int fd = shared->release(ignored);
      fcntl(fd, F_SETFD, FD_CLOEXEC);
      return fd;
    };
    on_accept_(std::move(connection));
  }

  AsioExecutor& executor_;
  const Options options_;
  OnAccept on_accept_;  // null: closed
  boost::asio::basic_socket_acceptor<stream_protocol> acceptor_;
  boost::asio::steady_timer pause_;
  std::chrono::milliseconds paused_for_{0};  // before the next connection
  std::string path_;
  std::pair<dev_t, ino_t> file_;  // the one that Listen made at path_
  bool is_tcp_ = false;
};

absl::StatusOr<std::unique_ptr<AsioListener>> AsioListener::Listen(AsioExecutor& executor, const std::string& address,
                                                                   Options options, OnAccept on_accept) {
  const absl::StatusOr<Place> place = PlaceOf(address);
  if (!place.ok()) return place.status();
  auto acceptor = std::make_shared<Acceptor>(executor, std::move(options), std::move(on_accept));
  absl::StatusOr<std::string> bound = acceptor->Open(address, *place);
  if (!bound.ok()) return bound.status();
  return std::unique_ptr<AsioListener>(new AsioListener(std::move(acceptor), *std::move(bound)));
}

absl::Status AsioListener::Validate(const std::string& address) {
  return PlaceOf(address).status();
}

AsioListener::AsioListener(std::shared_ptr<Acceptor> acceptor, std::string address)
    : acceptor_(std::move(acceptor)), address_(std::move(address)) {}

std::vector<std::string> AsioListener::AllAddresses() const {
  std::vector<std::string> all = {address_};
  const absl::StatusOr<HostPort> bound = ParseHostPort(address_);
  if (!bound.ok()) return all;
  boost::system::error_code error;
  const auto ip = boost::asio::ip::make_address(bound->host, error);
  if (error || !ip.is_unspecified()) return all;
  for (const std::string& address : HostAddresses()) {
    all.push_back(FormatSocketAddress(
        boost::asio::ip::tcp::endpoint(boost::asio::ip::make_address(address), static_cast<uint16_t>(bound->port))));
  }
  return all;
}

std::vector<std::string> HostAddresses() {
  std::vector<std::string> all;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(interfaces, &freeifaddrs);
  for (const ifaddrs* interface = interfaces; interface != nullptr; interface = interface->ifa_next) {
    if (interface->ifa_addr == nullptr) continue;
    boost::asio::ip::tcp::endpoint endpoint;
    const int family = interface->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::memcpy(endpoint.data(), interface->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    all.push_back(endpoint.address().to_string());
  }
  return all;
}

void AsioListener::Pause(std::chrono::milliseconds time) {
  acceptor_->Pause(time);
}

void AsioListener::Stop() {
  acceptor_->Stop();
}

AsioListener::~AsioListener() {
  acceptor_->Close();
}

}  // namespace sluice
