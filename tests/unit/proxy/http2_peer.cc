#include "tests/unit/proxy/http2_peer.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "lib/net/host_port.h"
#include "tests/eventually.h"
#include "tests/unit/net/test_listener.h"

namespace sluice::testing {
namespace {

// Blocking calls on the socket time out after kPatience.
void Connect(int fd, const sockaddr* address, size_t bytes) {
  const timeval patience = absl::ToTimeval(kPatience);
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)), 0);
  EXPECT_EQ(connect(fd, address, static_cast<socklen_t>(bytes)), 0) << std::strerror(errno);
}

// Whether the socket has become readable, or its connection has ended, within kPatience.
bool AwaitReadable(int fd) {
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) == 1;
}

}  // namespace

TestSocket::TestSocket(TestSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

TestSocket::~TestSocket() {
  if (fd_ >= 0) close(fd_);
}

void TestSocket::Send(absl::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ASSERT_GE(sent, 0) << std::strerror(errno);
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string TestSocket::ReceiveUntil(absl::string_view end) {
  std::string received;
  std::array<char, 16384> buffer;
  while (!absl::StrContains(received, end)) {
    if (!AwaitReadable(fd_)) {
      ADD_FAILURE() << "nothing came behind \"" << received << "\"";
      break;
    }
    const ssize_t got = recv(fd_, buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    received.append(buffer.data(), static_cast<size_t>(got));
  }
  return received;
}

std::string TestSocket::ReceiveAll() {
  return ReceiveUntil(std::string("\0never\0", 7));
}

void TestSocket::Break() {
  Reset(fd_);
  close(std::exchange(fd_, -1));
}

TestSocket ConnectTo(const std::string& address) {
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, "unix:") || absl::ConsumePrefix(&path, "unix-abstract:")) {
    const bool abstract = absl::StartsWith(address, "unix-abstract:");
    const boost::asio::local::stream_protocol::endpoint endpoint((abstract ? std::string(1, '\0') : std::string()) +
                                                                 std::string(path));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    Connect(fd, endpoint.data(), endpoint.size());
    return TestSocket(fd);
  }
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const boost::asio::ip::tcp::endpoint endpoint(boost::asio::ip::make_address(parsed->host),
                                                static_cast<uint16_t>(parsed->port));
  const int fd = socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  Connect(fd, endpoint.data(), endpoint.size());
  return TestSocket(fd);
}

std::string Http2Peer::Stream::Field(absl::string_view name) const {
  for (const HeaderList* list : {&trailers, &headers}) {
    for (const HeaderField& field : *list) {
      if (field.name == name) return field.value;
    }
  }
  return "";
}

void Http2Peer::Stream::OnHeaders(HeaderList list, bool end_stream) {
  EXPECT_FALSE(ended || closed.has_value());
  (headers.empty() ? headers : trailers) = std::move(list);
  ended = end_stream;
}

void Http2Peer::Stream::OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) {
  EXPECT_FALSE(ended || closed.has_value());
  data.append(bytes.data(), bytes.size());
  ended = end_stream;
  if (peer_.grants_) peer_.session_->Grant(id, static_cast<uint32_t>(window_bytes));
}

void Http2Peer::Stream::OnClosed(StreamEnd end) {
  EXPECT_FALSE(closed.has_value());
  closed = end;
}

Http2Peer::Http2Peer(TestSocket socket, Http2Session::Options options, std::unique_ptr<TlsClientEnd> tls)
    : socket_(std::move(socket)), tls_(std::move(tls)), session_(*Http2Session::Create(options, *this)) {
  if (tls_ == nullptr) return;
  EXPECT_TRUE(tls_->Receive("", output_));
}

Http2Peer::Stream& Http2Peer::Open(const HeaderList& headers, std::string body, bool end_stream,
                                   uint32_t granted_bytes) {
  auto stream = std::make_unique<Stream>(*this, 0);
  const auto id = session_->Open(headers, std::move(body), end_stream, granted_bytes, *stream);
  EXPECT_TRUE(id.ok()) << id.status();
  stream->id = id.value_or(0);
  Stream& opened = *(streams_[stream->id] = std::move(stream));
  Flush();
  return opened;
}

std::vector<Http2Peer::Stream*> Http2Peer::streams() {
  std::vector<Stream*> streams;
  for (const auto& [id, stream] : streams_) streams.push_back(stream.get());
  return streams;
}

StreamEvents* Http2Peer::OnStream(int32_t id) {
  return (streams_[id] = std::make_unique<Stream>(*this, id)).get();
}

void Http2Peer::Pump() {
  std::array<char, 65536> buffer;
  while (!over_) {
    const ssize_t got = recv(socket_.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) break;
    over_ = got <= 0 || !Receive({buffer.data(), static_cast<size_t>(got)});
    if (over_) session_->Lose();
  }
  Flush();
}

bool Http2Peer::Receive(absl::string_view bytes) {
  if (tls_ == nullptr) return session_->Receive(bytes).ok();
  const bool ok = tls_->Receive(bytes, output_);
  const std::string plaintext = tls_->received().substr(taken_bytes_);
  taken_bytes_ = tls_->received().size();
  return session_->Receive(plaintext).ok() && ok;
}

void Http2Peer::Flush() {
  if (over_) return;
  session_->Output(plaintext_);
  if (tls_ == nullptr) {
    output_ += std::exchange(plaintext_, {});
  } else if (tls_->established() && !plaintext_.empty()) {
    output_ += tls_->Send(std::exchange(plaintext_, {}));
  }
  while (!output_.empty()) {
    const ssize_t sent = send(socket_.fd(), output_.data(), output_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return;  // retry later, or the next read reports the error
    output_.erase(0, static_cast<size_t>(sent));
  }
}

bool Await(std::initializer_list<Http2Peer*> peers, absl::FunctionRef<bool()> condition) {
  return Eventually([&] {
    for (Http2Peer* peer : peers) peer->Pump();
    return condition();
  });
}

}  // namespace sluice::testing
