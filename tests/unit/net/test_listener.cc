#include "tests/unit/net/test_listener.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>  // Boost 1.74 needs it and does not include it in C++20

#include <arpa/inet.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace sluice::testing {
namespace {

using boost::asio::ip::tcp;

// Returns a unique name, so that the test can run several times at once.
std::string AbstractAddress() {
  static std::atomic<int> made{0};
  return absl::StrCat("unix-abstract:sluice-test-", getpid(), "-", ++made);
}

// Binds and listens; returns the descriptor and the actual address.
std::pair<int, WorkerAddress> Listen(const std::string& address, int queue = 16) {
  if (absl::StartsWith(address, "unix")) {
    const bool abstract = address == "unix-abstract:";
    const std::string name = abstract ? AbstractAddress() : address;
    const std::string path = name.substr(name.find(':') + 1);
    const boost::asio::local::stream_protocol::endpoint endpoint(abstract ? std::string(1, '\0') + path : path);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(bind(fd, endpoint.data(), static_cast<socklen_t>(endpoint.size())), 0) << std::strerror(errno);
    EXPECT_EQ(listen(fd, 16), 0);
    return {fd, {name}};
  }
  const bool v6 = absl::StartsWith(address, "[");
  tcp::endpoint endpoint(boost::asio::ip::make_address(v6 ? "::1" : "127.0.0.1"), 0);
  const int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(bind(fd, endpoint.data(), static_cast<socklen_t>(endpoint.size())), 0) << std::strerror(errno);
  EXPECT_EQ(listen(fd, queue), 0);
  auto bytes = static_cast<socklen_t>(endpoint.capacity());
  EXPECT_EQ(getsockname(fd, endpoint.data(), &bytes), 0);
  return {fd, {absl::StrCat(v6 ? "[::1]:" : "127.0.0.1:", endpoint.port())}};
}

}  // namespace

TestListener::TestListener(const std::string& address, Serve serve) : serve_(std::move(serve)) {
  std::tie(listener_, address_) = Listen(address);
  thread_ = std::thread([this] { Run(); });
}

TestListener::~TestListener() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
    shutdown(listener_, SHUT_RDWR);  // wakes accept
    if (connection_ >= 0) shutdown(connection_, SHUT_RDWR);
  }
  thread_.join();
  close(listener_);
}

void TestListener::Run() {
  while (true) {
    const int fd = accept(listener_, nullptr, nullptr);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (fd < 0 || closing_) {
        if (fd >= 0) close(fd);
        return;
      }
      connection_ = fd;
    }
    serve_(fd);
    const std::lock_guard<std::mutex> lock(mutex_);
    connection_ = -1;
    close(fd);
  }
}

void SendAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string ReceiveAtLeast(int fd, size_t bytes) {
  std::string received;
  std::array<char, 16384> buffer;
  while (received.size() < bytes) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    received.append(buffer.data(), static_cast<size_t>(got));
  }
  return received;
}

std::string ReceiveAll(int fd) {
  return ReceiveAtLeast(fd, SIZE_MAX);
}

std::string HowItEnds(int fd) {
  std::array<char, 16384> buffer;
  while (true) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got == 0) return "end";
    if (got < 0) return errno == ECONNRESET ? "reset" : "error";
  }
}

size_t SendUntilFull(int fd, size_t most_bytes) {
  const std::string bytes(65536, 'x');
  size_t sent_bytes = 0;
  while (sent_bytes < most_bytes) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) break;
    sent_bytes += static_cast<size_t>(std::max<ssize_t>(sent, 0));
    pollfd waiting{.fd = fd, .events = POLLOUT, .revents = 0};
    if (sent < 0 && poll(&waiting, 1, /*timeout=*/500) == 0) break;
  }
  int unacknowledged_bytes = 0;
  EXPECT_EQ(ioctl(fd, SIOCOUTQ, &unacknowledged_bytes), 0);
  return sent_bytes - static_cast<size_t>(unacknowledged_bytes);
}

void Reset(int fd) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
}

SilentAddress::SilentAddress(const std::string& address) {
  const auto [listener, listens] = Listen(address, 0);
  address_ = listens;
  sockets_.push_back(listener);
  sockaddr_storage endpoint{};
  socklen_t bytes = sizeof(endpoint);
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&endpoint), &bytes), 0);
  for (int i = 0; i < 4; ++i) {  // more than the queue holds; the last ones wait
    sockets_.push_back(socket(endpoint.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0));
    connect(sockets_.back(), reinterpret_cast<sockaddr*>(&endpoint), bytes);
  }
}

SilentAddress::~SilentAddress() {
  for (const int fd : sockets_) close(fd);
}

WorkerAddress AddressOfNobody() {
  const auto [fd, address] = Listen("127.0.0.1:0");
  close(fd);
  return address;
}

}  // namespace sluice::testing
