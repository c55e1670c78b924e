#include "lib/net/asio_stream.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/generic/stream_protocol.hpp>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/net/socket_address.h"
#include "lib/tcp/tcp_connection.h"
#include "lib/tls/tls_context.h"
#include "lib/tls/tls_filter.h"

namespace sluice {
namespace {

using boost::asio::generic::stream_protocol;

// Reads into the executor's buffer in one turn, bounded so that a fast peer does not starve others.
constexpr int kReadsPerTurn = 4;
// Parts of one write, far below IOV_MAX.
constexpr size_t kMaxParts = 64;
// More than any handshake sends after its first flight; it holds thousands of responses to KeyUpdate (RFC 8446, section
// 4.6.3).
constexpr size_t kMaxUnreadReplyBytes = 64u << 10;
// The kernel's timers for such times have a grain of 2 s (Linux, 250 ticks a second).
constexpr int kRareProbeSeconds = 98;
constexpr int kRareProbeChoices = 32;

// A socket and its pending operations; one for each connection, on the link's thread only. Handlers hold it, so that
// the owner may drop its handle at any time.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(AsioExecutor& executor, const std::string& name, std::shared_ptr<const TlsContext> tls,
         std::string server_name, StreamSocketEvents& events)
      : executor_(executor),
        name_(name),
        tls_(std::move(tls)),
        server_name_(std::move(server_name)),
        events_(&events),
        socket_(executor.context()) {}

  void Open(const WorkerAddress& address, const Executor::ConnectOptions& options);
  // Adopts an accepted socket of a listener instead of Open.
  void Take(stream_protocol::socket socket, bool half_open);
  void StartTls();
  void Write(std::string bytes);
  size_t unsent_bytes() const { return unsent_bytes_; }
  void EndWrites();
  void Reset();
  void SetReading(bool reading);
  void SetReceiveWindow(int bytes) {
    if (connected_ && described_.has_value()) receive_window_.Set(fd_, bytes);
  }
  // No event comes after this.
  void Close();
  std::optional<TcpSocket> Tcp() const;
  int error_number() const { return error_number_; }
  bool PeerHasOneOf(absl::Span<const std::string> names) const {
    return filter_ != nullptr && filter_->PeerHasOneOf(names);
  }
  std::string PeerName() const { return filter_ != nullptr ? filter_->PeerName() : ""; }
  void CheckPeer(std::function<void(const absl::Status& why)> on_revoked);

 private:
  bool is_open() const { return events_ != nullptr; }
  absl::Status Error(absl::string_view what, int error) {
    error_number_ = error;
    return absl::UnavailableError(absl::StrCat(what, name_, ": ", std::strerror(error)));
  }

  void LetStall();
  void OnSocketConnected(int error);
  void Begin();
  void StopWatchingWrites();
  void ArmRead();
  void ArmWrite();
  void OnReadable();
  void Read();
  void OnBytes(absl::string_view bytes);
  void OnCiphertext(absl::string_view ciphertext);
  void OnEnd(absl::Status why);
  void WatchForError();
  absl::Status End() const { return filter_ != nullptr ? filter_->ReceiveEnd() : absl::OkStatus(); }
  absl::Status Broken(int error) {
    error_number_ = error;
    return filter_ != nullptr ? filter_->ReceiveEnd(std::strerror(error)) : Error("", error);
  }
  void Send(std::string bytes);
  void Flush();
  void FailWrites(absl::Status why);
  void Disconnect(absl::Status why);
  // Reports the end in a later task: within a call of the owner no event may be called.
  void PostDisconnect(absl::Status why);

  AsioExecutor& executor_;
  const std::string name_;                       // the peer's name, for errors
  const std::shared_ptr<const TlsContext> tls_;  // null: plaintext
  const std::string server_name_;
  StreamSocketEvents* events_;  // null: closed
  stream_protocol::socket socket_;
  int fd_ = -1;                           // of socket_
  bool accepted_ = false;                 // by a listener
  bool may_stall_ = false;                // as in Executor::ConnectOptions
  std::shared_ptr<const void> stalling_;  // AsioExecutor::stalling_streams; null: it may not stall
  bool bounded_ = false;                  // by its receive_buffer_bytes
  ReceiveWindow receive_window_;
  bool tls_later_ = false;              // as in Executor::ConnectOptions, too
  bool half_open_ = false;              // likewise
  std::unique_ptr<TlsFilter> filter_;   // once the socket is connected; null: plaintext
  std::shared_ptr<SSL_CTX> checked_;    // its lists do not name the peer
  bool connected_ = false;              // and its TLS handshake is complete
  std::optional<TcpSocket> described_;  // without its TcpInfo
  bool reading_ = true;                 // the owner accepts OnBytes
  bool ended_ = false;                  // the peer sends no more
  bool ends_ = false;                   // this side sends no more, once unsent_ has left
  bool read_armed_ = false;
  bool write_armed_ = false;
  uint64_t read_turn_ = 0;  // the turn that reads_left_ counts
  int reads_left_ = 0;
  std::deque<std::string> unsent_;
  size_t front_sent_ = 0;          // bytes sent of the first part
  size_t unsent_bytes_ = 0;        // of all parts
  size_t unread_reply_bytes_ = 0;  // TLS replies, such as to KeyUpdate, queued behind other bytes
  int error_number_ = 0;           // as StreamSocket::error_number
  absl::Status write_error_;       // set while a failed connection is read to its end
};

void Stream::Open(const WorkerAddress& address, const Executor::ConnectOptions& options) {
  may_stall_ = options.may_stall;
  tls_later_ = options.tls_later;
  half_open_ = options.half_open;
  const absl::StatusOr<stream_protocol::endpoint> endpoint = ParseSocketAddress(address.text, SocketUse::kConnect);
  if (!endpoint.ok()) return PostDisconnect(endpoint.status());
  boost::system::error_code error;
  socket_.open(endpoint->protocol(), error);
  if (!error) socket_.native_non_blocking(true, error);
  fd_ = socket_.native_handle();
  if (error) return PostDisconnect(Error("open a socket for ", error.value()));
  if (endpoint->protocol().family() == AF_UNIX) {
    // A Unix socket connects or fails at once. Asio is avoided because it takes a full listener queue (EAGAIN) for a
    // connection.
    const int failed = ::connect(fd_, endpoint->data(), static_cast<socklen_t>(endpoint->size()));
    executor_.Post([self = shared_from_this(), error = failed != 0 ? errno : 0] { self->OnSocketConnected(error); });
    return;
  }
  bounded_ = options.receive_buffer_bytes > 0;
  SetUpTcp(fd_, executor_.Random(), options.receive_buffer_bytes);
  socket_.async_connect(*endpoint, [self = shared_from_this()](const boost::system::error_code& error) {
    self->OnSocketConnected(error.value());
  });
}

void Stream::OnSocketConnected(int error) {
  if (!is_open()) return;
  if (error == ETIMEDOUT) return Disconnect(absl::DeadlineExceededError(Error("connect to ", error).message()));
  if (error != 0) return Disconnect(Error("connect to ", error));
  described_ = DescribeTcp(fd_);
  // If no process listens at a local port in the range for clients, TCP may connect a socket to itself.
  if (described_.has_value() && described_->local == described_->remote) {
    return Disconnect(Error("connect to ", ECONNREFUSED));
  }
  if (may_stall_) LetStall();  // only now, because the user timeout also bounds the connect time
  StopWatchingWrites();
  Begin();
}

void Stream::Take(stream_protocol::socket socket, bool half_open) {
  accepted_ = true;
  half_open_ = half_open;
  socket_ = std::move(socket);
  fd_ = socket_.native_handle();
  described_ = DescribeTcp(fd_);
  if (described_.has_value()) {
    SetUpTcp(fd_, executor_.Random());
    LetStall();
  }
  boost::system::error_code error;
  socket_.native_non_blocking(true, error);
  if (error) return PostDisconnect(Error("", error.value()));
  executor_.Post([self = shared_from_this()] {
    if (self->is_open()) self->Begin();
  });
}

// A proxy may have tens of thousands of these, idle at the same time. The kernel sends the probes of a grain of its
// timers at once: with 20,000 connections that are probed after 5 to 7 s, about 800 of each 256 ms. Loopback drops
// those beyond net.core.netdev_max_backlog, and a tenth of 10,000 idle tunnels ended within a minute.
void Stream::LetStall() {
  sluice::LetStall(fd_);
  stalling_ = executor_.stalling_streams();
  if (stalling_.use_count() - 1 <= executor_.options().often_probed_streams) return;
  const int seconds = kRareProbeSeconds + static_cast<int>(executor_.Random() * kRareProbeChoices);
  setsockopt(fd_, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
}

void Stream::Begin() {
  if (tls_ != nullptr && tls_later_) return events_->OnTcpConnected();
  if (tls_ != nullptr) return StartTls();
  ArmRead();
  connected_ = true;
  events_->OnConnected();
}

void Stream::SetReading(bool reading) {
  if (std::exchange(reading_, reading) == reading || !is_open() || !connected_) return;
  if (bounded_) AcknowledgeUnread(fd_, !reading);
  if (reading) ArmRead();
}

// Registers the socket again with EPOLLIN alone. Asio registers EPOLLOUT from the first wait for it, which
// async_connect is. Each ArmRead would then wake at once for a writable socket, at two more system calls per read.
void Stream::StopWatchingWrites() {
  boost::system::error_code error;
  const stream_protocol protocol = socket_.local_endpoint(error).protocol();
  if (error) return;
  const int fd = socket_.release(error);
  if (!error) socket_.assign(protocol, fd, error);
}

// Waits for the socket to connect: a key exchange for each try at an unreachable worker is expensive.
void Stream::StartTls() {
  if (!is_open()) return;
  ArmRead();
  const std::shared_ptr<SSL_CTX> context = tls_->Current();
  absl::StatusOr<std::unique_ptr<TlsFilter>> filter = accepted_
                                                          ? TlsFilter::Accept(*context, tls_->client_names(), name_)
                                                          : TlsFilter::Create(*context, server_name_, name_);
  if (!filter.ok()) return PostDisconnect(filter.status());
  filter_ = *std::move(filter);
  checked_ = context;
  Send(filter_->TakeCiphertext());
}

void Stream::CheckPeer(std::function<void(const absl::Status& why)> on_revoked) {
  if (!is_open() || !connected_ || filter_ == nullptr) return;
  std::shared_ptr<SSL_CTX> current = tls_->Current();
  if (current == checked_) return;
  checked_ = std::move(current);
  absl::Status why = filter_->CheckPeer(*checked_);
  if (why.ok()) return;
  executor_.Post([self = shared_from_this(), on_revoked = std::move(on_revoked), why = std::move(why)] {
    if (self->is_open()) on_revoked(why);
  });
}

// Arms after the output of the turn: it is a system call, and output caused by received bytes must not wait for it.
void Stream::ArmRead() {
  if (ended_ || std::exchange(read_armed_, true)) return;
  executor_.AfterOutput([self = shared_from_this()] {
    if (!self->is_open()) return;
    self->socket_.async_wait(stream_protocol::socket::wait_read, [self](const boost::system::error_code& /*error*/) {
      self->read_armed_ = false;
      self->OnReadable();
    });
  });
}

void Stream::OnReadable() {
  const bool in_handshake = filter_ != nullptr && !connected_;
  if (!in_handshake) return Read();
  const auto step = [self = shared_from_this()] { self->Read(); };
  accepted_ ? executor_.QueueClientHandshake(step) : executor_.QueueWorkerHandshake(step);
}

// Reads the available bytes into the shared buffer, so an idle connection costs no buffer.
void Stream::Read() {
  const absl::Span<char> buffer = executor_.read_buffer();
  if (read_turn_ != executor_.turn()) {
    read_turn_ = executor_.turn();
    reads_left_ = kReadsPerTurn;
  }
  if (ended_ && write_error_.ok()) return;
  while (is_open() && reading_) {
    if (reads_left_ == 0) return executor_.NextTurn([self = shared_from_this()] { self->Read(); });
    const ssize_t got = recv(fd_, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno != EAGAIN) return Disconnect(write_error_.ok() ? Broken(errno) : write_error_);
    // A write failed earlier, and all bytes received before are read now.
    if (got <= 0 && !write_error_.ok()) return Disconnect(write_error_);
    if (got < 0) return ArmRead();
    if (got == 0) return OnEnd(End());
    --reads_left_;
    const auto bytes = static_cast<size_t>(got);
    OnBytes({buffer.data(), bytes});
    // A short read has emptied the socket; later bytes make it readable again.
    if (is_open() && reading_ && bytes < buffer.size() && write_error_.ok()) return ArmRead();
  }
}

void Stream::OnBytes(absl::string_view bytes) {
  if (filter_ != nullptr) return OnCiphertext(bytes);
  events_->OnBytes(bytes);
}

void Stream::OnCiphertext(absl::string_view ciphertext) {
  std::string& plaintext = executor_.plaintext_buffer();
  plaintext.clear();
  absl::Status status = filter_->Receive(ciphertext, plaintext);
  std::string reply = filter_->TakeCiphertext();
  // The owner does not see TLS replies, so it cannot stop a peer that requests one after another and reads none.
  unread_reply_bytes_ = unsent_bytes_ > 0 ? unread_reply_bytes_ + reply.size() : 0;
  if (unread_reply_bytes_ > kMaxUnreadReplyBytes) {
    return Disconnect(absl::UnavailableError(absl::StrCat(name_, " reads none of the responses of TLS")));
  }
  Send(std::move(reply));
  if (!connected_ && filter_->established()) {
    connected_ = true;
    events_->OnConnected();
  }
  if (is_open() && !plaintext.empty()) events_->OnBytes(plaintext);
  if (is_open() && (!status.ok() || filter_->ended())) OnEnd(std::move(status));
}

void Stream::OnEnd(absl::Status why) {
  if (!half_open_ || !connected_ || !why.ok()) return Disconnect(std::move(why));
  ended_ = true;
  WatchForError();
  events_->OnEnded();
}

// A socket that has ended stays readable, so only an error shows that the peer is gone. The kernel reports one, too,
// once both directions have ended.
void Stream::WatchForError() {
  socket_.async_wait(stream_protocol::socket::wait_error,
                     [self = shared_from_this()](const boost::system::error_code& /*error*/) {
                       if (!self->is_open()) return;
                       if (!self->write_error_.ok()) return self->Disconnect(self->write_error_);
                       int error = 0;
                       socklen_t size = sizeof(error);
                       getsockopt(self->fd_, SOL_SOCKET, SO_ERROR, &error, &size);
                       if (error == 0 && !self->ends_) error = EPIPE;  // a Unix socket whose peer has closed it
                       self->Disconnect(error == 0 ? absl::OkStatus() : self->Error("", error));
                     });
}

void Stream::EndWrites() {
  if (!is_open() || !write_error_.ok() || std::exchange(ends_, true)) return;
  if (filter_ != nullptr) {
    filter_->SendEnd();
    Send(filter_->TakeCiphertext());
  }
  if (unsent_.empty()) shutdown(fd_, SHUT_WR);
}

void Stream::Reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  if (is_open()) setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  ends_ = true;
  Close();
}

void Stream::Write(std::string bytes) {
  assert(connected_ || !is_open());
  if (filter_ == nullptr) return Send(std::move(bytes));
  if (!is_open() || !write_error_.ok()) return;
  if (absl::Status status = filter_->Send(bytes); !status.ok()) return FailWrites(std::move(status));
  Send(filter_->TakeCiphertext());
}

void Stream::Send(std::string bytes) {
  if (!is_open() || !write_error_.ok() || bytes.empty()) return;
  unsent_bytes_ += bytes.size();
  unsent_.push_back(std::move(bytes));
  if (!write_armed_) Flush();
}

void Stream::ArmWrite() {
  if (std::exchange(write_armed_, true)) return;
  socket_.async_wait(stream_protocol::socket::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& /*error*/) {
                       self->write_armed_ = false;
                       if (!self->is_open()) return;
                       self->Flush();
                       if (self->connected_ && self->unsent_bytes_ == 0) self->events_->OnDrained();
                     });
}

void Stream::Flush() {
  while (!unsent_.empty()) {
    std::array<iovec, kMaxParts> parts;
    const size_t count = std::min(unsent_.size(), parts.size());
    size_t offered = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t skip = i == 0 ? front_sent_ : 0;
      parts[i] = {unsent_[i].data() + skip, unsent_[i].size() - skip};
      offered += parts[i].iov_len;
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t result = sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (result < 0 && errno == EINTR) continue;
    if (result < 0 && errno == EAGAIN) return ArmWrite();
    if (result < 0) return FailWrites(Broken(errno));
    const auto sent = static_cast<size_t>(result);
    front_sent_ += sent;
    unsent_bytes_ -= sent;
    while (!unsent_.empty() && front_sent_ >= unsent_.front().size()) {
      front_sent_ -= unsent_.front().size();
      unsent_.pop_front();
    }
    if (sent < offered) return ArmWrite();
  }
  if (ends_) shutdown(fd_, SHUT_WR);
}

// Read first: the peer may have sent its reason before it closed.
void Stream::FailWrites(absl::Status why) {
  write_error_ = std::move(why);
  unsent_.clear();
  unsent_bytes_ = 0;
  reading_ = true;
  executor_.Post([self = shared_from_this()] { self->Read(); });
}

void Stream::Disconnect(absl::Status why) {
  StreamSocketEvents* const events = events_;
  Close();
  events->OnDisconnected(std::move(why));
}

void Stream::PostDisconnect(absl::Status why) {
  executor_.Post([self = shared_from_this(), why = std::move(why)] {
    if (self->is_open()) self->Disconnect(why);
  });
}

void Stream::Close() {
  if (filter_ != nullptr && is_open() && !ends_ && unsent_.empty() && write_error_.ok()) {
    filter_->SendEnd();
    const std::string end = filter_->TakeCiphertext();
    if (!end.empty()) send(fd_, end.data(), end.size(), MSG_NOSIGNAL);
  }
  events_ = nullptr;
  connected_ = false;
  unsent_.clear();
  boost::system::error_code ignored;
  socket_.close(ignored);
}

std::optional<TcpSocket> Stream::Tcp() const {
  if (!connected_ || !described_.has_value()) return std::nullopt;
  std::optional<TcpSocket> tcp = described_;
  return ReadTcpInfo(fd_, tcp->info) ? tcp : std::nullopt;
}

// The owner's handle of a stream.
class StreamHandle final : public StreamSocket {
 public:
  explicit StreamHandle(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  ~StreamHandle() override { stream_->Close(); }

  void StartTls() override { stream_->StartTls(); }
  void Write(std::string bytes) override { stream_->Write(std::move(bytes)); }
  size_t unsent_bytes() const override { return stream_->unsent_bytes(); }
  void EndWrites() override { stream_->EndWrites(); }
  void Reset() override { stream_->Reset(); }
  void SetReading(bool reading) override { stream_->SetReading(reading); }
  void SetReceiveWindow(int bytes) override { stream_->SetReceiveWindow(bytes); }
  std::optional<TcpSocket> Tcp() const override { return stream_->Tcp(); }
  int error_number() const override { return stream_->error_number(); }
  bool PeerHasOneOf(absl::Span<const std::string> names) const override { return stream_->PeerHasOneOf(names); }
  std::string PeerName() const override { return stream_->PeerName(); }
  void CheckPeer(std::function<void(const absl::Status& why)> on_revoked) override {
    stream_->CheckPeer(std::move(on_revoked));
  }

 private:
  const std::shared_ptr<Stream> stream_;
};

}  // namespace

std::unique_ptr<StreamSocket> ConnectStream(AsioExecutor& executor, const WorkerAddress& address,
                                            const Executor::ConnectOptions& options, StreamSocketEvents& events) {
  auto stream = std::make_shared<Stream>(executor, address.text, options.tls, options.server_name, events);
  stream->Open(address, options);
  return std::make_unique<StreamHandle>(std::move(stream));
}

std::unique_ptr<StreamSocket> AcceptStream(AsioExecutor& executor, stream_protocol::socket socket,
                                           const std::string& peer, std::shared_ptr<const TlsContext> tls,
                                           bool half_open, StreamSocketEvents& events) {
  auto stream = std::make_shared<Stream>(executor, peer, std::move(tls), "", events);
  stream->Take(std::move(socket), half_open);
  return std::make_unique<StreamHandle>(std::move(stream));
}

}  // namespace sluice
