#include "tests/link/test_http2_server.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/grpc_wire/request.h"
#include "lib/grpc_wire/response_head.h"
#include "tests/http2/raw_frames.h"

namespace sluice::testing {
namespace {

constexpr std::chrono::seconds kPatience(30);
constexpr size_t kFrameHeaderBytes = 9;

// Bytes of flow control that the DATA frames in `frames` take, by stream.
void AddSent(absl::string_view frames, std::map<int32_t, int64_t>& sent_bytes) {
  for (const raw::ReadFrame& frame : raw::ReadFrames(frames)) {
    if (frame.type == raw::kData) sent_bytes[frame.stream] += static_cast<int64_t>(frame.payload.size());
  }
}

}  // namespace

// --- Calls.

void TestHttp2Server::Call::OnHeaders(HeaderList headers, bool end_stream) {
  for (const HeaderField& field : headers) {
    if (field.name == ":path") path_ = field.value;
  }
  OnData("", 0, end_stream);
}

void TestHttp2Server::Call::OnData(absl::string_view, size_t window_bytes, bool end_stream) {
  if (window_bytes > 0 && !end_stream) connection_.session().Grant(stream_, static_cast<uint32_t>(window_bytes));
  if (!end_stream) return;
  auto received = connection_.receiving_.extract(stream_);
  connection_.server_.Take(std::move(received.mapped()));
}

void TestHttp2Server::Call::Answer(absl::string_view message) {
  SendHead();
  SendData(FrameMessage(message));
  SendTrailers();
}

void TestHttp2Server::Call::Fail(const absl::Status& status) {
  connection_.session().SendHeaders(stream_, ToTrailersOnly(status, "", {}), /*end_stream=*/true);
}

void TestHttp2Server::Call::SendHead() {
  connection_.session().SendHeaders(stream_, ToHeaders(ResponseHead()), /*end_stream=*/false);
}

void TestHttp2Server::Call::SendData(std::string bytes) {
  EXPECT_TRUE(connection_.session().SendData(stream_, std::move(bytes), /*end_stream=*/false).ok());
}

void TestHttp2Server::Call::SendFrames(const std::string& frames) {
  connection_.SendFrames(frames);
}

void TestHttp2Server::Call::SendTrailers(const absl::Status& status) {
  connection_.session().SendHeaders(stream_, ToTrailers(status, "", {}), /*end_stream=*/true);
}

void TestHttp2Server::Call::Reset(Http2Error error) {
  connection_.session().Reset(stream_, error);
}

int64_t TestHttp2Server::Call::window_bytes() const {
  return connection_.first_window_bytes_ + connection_.widened_bytes_[stream_] - connection_.sent_bytes_[stream_];
}

// --- Connections.

TestHttp2Server::Connection::Connection(TestHttp2Server& server, int fd, uint32_t max_concurrent_streams)
    : server_(server),
      fd_(fd),
      session_(*Http2Session::Create(
          {.side = Http2Session::Side::kServer, .max_concurrent_streams = max_concurrent_streams}, *this)) {
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

TestHttp2Server::Connection::~Connection() {
  if (fd_ >= 0) close(fd_);
}

void TestHttp2Server::Connection::OnReadable() {
  std::array<char, 65536> buffer;
  const ssize_t got = recv(fd_, buffer.data(), buffer.size(), 0);
  if (got <= 0) return Break();
  const absl::string_view bytes(buffer.data(), static_cast<size_t>(got));
  Watch(bytes);
  receiving_now_ = true;
  const absl::Status received = session_->Receive(bytes);
  receiving_now_ = false;
  Flush();
  if (!received.ok()) Break();
}

StreamEvents* TestHttp2Server::Connection::OnStream(int32_t stream) {
  return (receiving_[stream] = std::make_unique<Call>(*this, stream)).get();
}

void TestHttp2Server::Connection::Flush() {
  if (receiving_now_) return;
  std::string output;
  session_->Output(output);
  output += std::exchange(frames_, std::string());
  Send(output);
}

void TestHttp2Server::Connection::SendFrames(const std::string& frames) {
  frames_ += frames;
  Flush();
}

void TestHttp2Server::Connection::Send(absl::string_view bytes) {
  AddSent(bytes, sent_bytes_);
  while (!bytes.empty() && fd_ >= 0) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void TestHttp2Server::Connection::Watch(absl::string_view bytes) {
  absl::StrAppend(&unread_, bytes);
  const size_t preface_bytes = preface_read_ ? 0 : sizeof(raw::kPreface) - 1;
  if (unread_.size() < preface_bytes) return;
  unread_.erase(0, preface_bytes);
  preface_read_ = true;
  while (unread_.size() >= kFrameHeaderBytes) {
    size_t frame_bytes = kFrameHeaderBytes;
    for (int i = 0; i < 3; ++i) frame_bytes += size_t{static_cast<uint8_t>(unread_[i])} << (8 * (2 - i));
    if (unread_.size() < frame_bytes) return;
    const raw::ReadFrame frame = raw::ReadFrames(unread_.substr(0, frame_bytes)).front();
    unread_.erase(0, frame_bytes);
    if (frame.type == raw::kWindowUpdate) widened_bytes_[frame.stream] += frame.number();
    if (frame.type == raw::kRstStream) server_.Count([](Counts& counts) { ++counts.resets; });
    if (frame.type != raw::kSettings) continue;
    for (size_t at = 0; at + 6 <= frame.payload.size(); at += 6) {
      if (frame.payload[at + 1] == raw::kInitialWindowSize) first_window_bytes_ = frame.number(at + 2);
    }
  }
}

void TestHttp2Server::Connection::Break() {
  if (fd_ < 0) return;
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(std::exchange(fd_, -1));
  session_->Lose();
  server_.Count([](Counts& counts) { --counts.open_connections; });
}

// --- The server.

TestHttp2Server::TestHttp2Server(Handler handler, const Options& options)
    : handler_(std::move(handler)), options_(options), wake_(eventfd(0, EFD_NONBLOCK)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  EXPECT_EQ(setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(options_.port));
  EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(listener_, 64), 0);
  socklen_t size = sizeof(address);
  EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Loop(); });
}

TestHttp2Server::~TestHttp2Server() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
  close(listener_);
  close(wake_);
}

std::string TestHttp2Server::address() const {
  return absl::StrCat("127.0.0.1:", port_);
}

void TestHttp2Server::Wake() {
  const uint64_t one = 1;
  EXPECT_EQ(write(wake_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
}

void TestHttp2Server::Run(absl::FunctionRef<void()> task) {
  bool done = false;
  std::unique_lock<std::mutex> lock(mutex_);
  tasks_.push_back([&] {
    task();
    const std::lock_guard<std::mutex> done_lock(mutex_);
    done = true;
    changed_.notify_all();
  });
  Wake();
  changed_.wait(lock, [&] { return done; });
}

bool TestHttp2Server::Await(const std::function<bool(const Counts&)>& condition) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return condition(counts_); });
}

TestHttp2Server::Counts TestHttp2Server::counts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

void TestHttp2Server::Count(absl::FunctionRef<void(Counts&)> change) {
  const std::lock_guard<std::mutex> lock(mutex_);
  change(counts_);
  changed_.notify_all();
}

void TestHttp2Server::Take(std::unique_ptr<Call> call) {
  calls_.push_back(std::move(call));
  handler_(*calls_.back());
  Count([](Counts& counts) { ++counts.requests; });
}

void TestHttp2Server::Accept() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;
  connections_.push_back(std::make_unique<Connection>(*this, fd, options_.max_concurrent_streams));
  connections_.back()->Flush();
  Count([](Counts& counts) {
    ++counts.connections;
    ++counts.open_connections;
  });
}

void TestHttp2Server::Loop() {
  while (true) {
    std::vector<pollfd> waits = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    std::vector<Connection*> waiting;
    for (const auto& connection : connections_) {
      if (connection->over()) continue;
      waits.push_back({connection->fd(), POLLIN, 0});
      waiting.push_back(connection.get());
    }
    poll(waits.data(), waits.size(), -1);
    uint64_t woken = 0;
    while (read(wake_, &woken, sizeof(woken)) > 0) continue;
    std::vector<std::function<void()>> tasks;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_) return;
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waits[i + 2].revents != 0 && !waiting[i]->over()) waiting[i]->OnReadable();
      if (!waiting[i]->over()) waiting[i]->Flush();
    }
    if (waits[1].revents != 0) Accept();
  }
}

}  // namespace sluice::testing
