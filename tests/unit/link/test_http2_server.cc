#include "tests/unit/link/test_http2_server.h"

#include <future>
#include <memory>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/ip/address_v4.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/strings/str_cat.h"
#include "tests/unit/link/test_http2_connection.h"

namespace sluice::testing {

using boost::asio::ip::tcp;

TestHttp2Server::Call::Call(Connection& connection, int32_t stream)
    : ServerCall(connection.session(), stream), connection_(connection) {}

TestHttp2Server& TestHttp2Server::Call::server() {
  return connection_.server_;
}

void TestHttp2Server::Call::SendFrames(const std::string& frames) {
  connection_.SendFrames(frames);
}

int64_t TestHttp2Server::Call::window_bytes() const {
  return connection_.first_window_bytes_ + connection_.widened_bytes_[stream()] - connection_.sent_bytes_[stream()];
}

void TestHttp2Server::Call::OnRequest() {
  connection_.server_.Take(std::move(connection_.receiving_.extract(stream()).mapped()));
}

void TestHttp2Server::Call::OnWritable() {
  if (on_writable) on_writable();
}

void TestHttp2Server::Call::OnGone(StreamEnd end) {
  if (on_closed) on_closed(end);
}

TestHttp2Server::TestHttp2Server(Handler handler, const Options& options)
    : handler_(std::move(handler)),
      options_(options),
      acceptor_(context_, tcp::endpoint(boost::asio::ip::address_v4::loopback(), static_cast<uint16_t>(options.port))) {
  port_ = acceptor_.local_endpoint().port();
  Accept();
  thread_ = std::thread([this] { context_.run(); });
}

TestHttp2Server::~TestHttp2Server() {
  Run([this] {
    for (const auto& connection : connections_) connection->Close();
    context_.stop();
  });
  thread_.join();
}

std::string TestHttp2Server::address() const {
  return absl::StrCat("127.0.0.1:", port());
}

void TestHttp2Server::Run(absl::FunctionRef<void()> task) {
  std::packaged_task<void()> run([&] {
    task();
    Flush();
  });
  const std::future<void> done = run.get_future();
  boost::asio::post(context_, std::move(run));
  done.wait();
}

void TestHttp2Server::RunAfter(std::chrono::nanoseconds delay, std::function<void()> task) {
  const auto timer = std::make_shared<boost::asio::steady_timer>(context_, delay);
  timer->async_wait([this, timer, task = std::move(task)](const boost::system::error_code&) {
    task();
    Flush();
  });
}

void TestHttp2Server::Take(std::unique_ptr<Call> call) {
  calls_.push_back(std::move(call));
  handler_(*calls_.back());
  counts_.Change([](Counts& counts) { ++counts.requests; });
}

void TestHttp2Server::Accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
    if (error) return;
    connections_.push_back(std::make_unique<Connection>(*this, std::move(socket)));
    connections_.back()->Flush();
    connections_.back()->Read();
    counts_.Change([](Counts& counts) {
      ++counts.connections;
      ++counts.open_connections;
    });
    Accept();
  });
}

void TestHttp2Server::Flush() {
  for (const auto& connection : connections_) connection->Flush();
}

}  // namespace sluice::testing
