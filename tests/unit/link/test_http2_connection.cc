#include "tests/unit/link/test_http2_connection.h"

#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>

#include "absl/strings/str_cat.h"
#include "tests/unit/http2/raw_frames.h"

namespace sluice::testing {
namespace {

constexpr size_t kFrameHeaderBytes = 9;

// Adds the flow-control bytes of the DATA frames in `frames`, by stream.
void AddSent(absl::string_view frames, std::map<int32_t, int64_t>& sent_bytes) {
  for (const raw::ReadFrame& frame : raw::ReadFrames(frames)) {
    if (frame.type == raw::kData) sent_bytes[frame.stream] += static_cast<int64_t>(frame.payload.size());
  }
}

}  // namespace

TestHttp2Server::Connection::Connection(TestHttp2Server& server, boost::asio::ip::tcp::socket socket)
    : server_(server),
      socket_(std::move(socket)),
      session_(*Http2Session::Create({.side = Http2Session::Side::kServer,
                                      .max_concurrent_streams = server.options_.max_concurrent_streams,
                                      .max_unsent_bytes_per_stream = 64u << 20},
                                     *this)) {
  boost::system::error_code ignored;  // of a client that has disconnected, which the first read finds
  socket_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  if (server.options_.tls.has_value()) tls_.emplace(*server.options_.tls);
}

void TestHttp2Server::Connection::Read() {
  socket_.async_read_some(boost::asio::buffer(buffer_), [this](const boost::system::error_code& error, size_t bytes) {
    if (error) return Close();
    OnBytes(absl::string_view(buffer_.data(), bytes));
    server_.Flush();
    if (socket_.is_open()) Read();
  });
}

void TestHttp2Server::Connection::OnBytes(absl::string_view bytes) {
  if (!tls_.has_value()) return OnPlaintext(bytes);
  const bool good = tls_->Receive(bytes, output_);
  Write();  // of the handshake, or an alert
  const absl::string_view plaintext = absl::string_view(tls_->received()).substr(plaintext_bytes_);
  plaintext_bytes_ += plaintext.size();
  if (!plaintext.empty()) OnPlaintext(plaintext);
  if (!good) Close();
}

void TestHttp2Server::Connection::OnPlaintext(absl::string_view bytes) {
  Watch(bytes);
  receiving_now_ = true;
  const absl::Status received = session_->Receive(bytes);
  receiving_now_ = false;
  Flush();
  if (!received.ok()) Close();
}

StreamEvents* TestHttp2Server::Connection::OnStream(int32_t stream) {
  return (receiving_[stream] = std::make_unique<Call>(*this, stream)).get();
}

void TestHttp2Server::Connection::SendFrames(const std::string& frames) {
  frames_ += frames;
  Flush();
}

void TestHttp2Server::Connection::Flush() {
  if (receiving_now_ || !socket_.is_open() || (tls_.has_value() && !tls_->established())) return;
  std::string bytes;
  session_->Output(bytes);
  bytes += std::exchange(frames_, std::string());
  if (bytes.empty()) return;
  AddSent(bytes, sent_bytes_);
  output_ += tls_.has_value() ? tls_->Send(bytes) : bytes;
  Write();
}

void TestHttp2Server::Connection::Write() {
  while (!output_.empty() && !output_waits_ && socket_.is_open()) {
    boost::system::error_code error;
    output_.erase(0, socket_.write_some(boost::asio::buffer(output_), error));
    if (error && error != boost::asio::error::would_block) return;  // the next read returns it, too
    if (!error) continue;
    output_waits_ = true;
    socket_.async_wait(boost::asio::socket_base::wait_write, [this](const boost::system::error_code&) {
      output_waits_ = false;
      Write();
    });
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
    if (frame.type == raw::kRstStream) server_.counts_.Change([](Counts& counts) { ++counts.resets; });
    if (frame.type != raw::kSettings) continue;
    for (size_t at = 0; at + 6 <= frame.payload.size(); at += 6) {
      if (frame.payload[at + 1] == raw::kInitialWindowSize) first_window_bytes_ = frame.number(at + 2);
    }
  }
}

void TestHttp2Server::Connection::Break() {
  if (!socket_.is_open()) return;
  boost::system::error_code ignored;
  socket_.set_option(boost::asio::socket_base::linger(true, 0), ignored);
  Close();
}

void TestHttp2Server::Connection::Close() {
  if (!socket_.is_open()) return;
  boost::system::error_code ignored;
  socket_.close(ignored);
  session_->Lose();
  server_.counts_.Change([](Counts& counts) { --counts.open_connections; });
}

}  // namespace sluice::testing
