#include "tests/testbed/tunnel_caller.h"

#include <chrono>
#include <cstdint>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio.hpp>

#include "absl/strings/str_cat.h"
#include "tests/testbed/byte_message.h"
#include "tests/testbed/tcp_endpoint.h"

namespace sluice::testbed {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// One tunnel, and what it does: it asks for the tunnel if there is none, sends a request, and reads the response.
class ByteTunnel {
 public:
  using OnDone = std::function<void(const absl::Status&)>;

  ByteTunnel(asio::io_context& context, std::string worker, tcp::endpoint via)
      : socket_(context), worker_(std::move(worker)), via_(std::move(via)) {}

  void Exchange(const v1::AnswerRequest& request, OnDone on_done) {
    on_done_ = std::move(on_done);
    request_ = {.response_bytes = request.response_bytes(), .think_us = request.think_us(), .padding = {}};
    if (socket_.is_open()) return Send();
    socket_.async_connect(via_, [this](const error_code& error) {
      if (Failed("connect", error)) return;
      socket_.set_option(tcp::no_delay(true));
      AskForTunnel();
    });
  }
  void Close() {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  void AskForTunnel() {
    head_ = absl::StrCat("CONNECT ", worker_, " HTTP/1.1\r\nHost: ", worker_, "\r\n\r\n");
    asio::async_write(socket_, asio::buffer(head_), [this](const error_code& error, size_t) {
      if (Failed("CONNECT", error)) return;
      head_.clear();
      asio::async_read_until(socket_, asio::dynamic_buffer(head_), "\r\n\r\n", [this](const error_code& read, size_t) {
        if (Failed("CONNECT", read)) return;
        if (head_.find(" 200 ") == std::string::npos) return on_done_(absl::UnavailableError("CONNECT: " + head_));
        Send();
      });
    });
  }
  void Send() {
    asio::async_write(socket_, asio::buffer(&request_, sizeof(request_)), [this](const error_code& error, size_t) {
      if (Failed("write", error)) return;
      response_.resize(request_.response_bytes);
      asio::async_read(socket_, asio::buffer(response_), [this](const error_code& read, size_t) {
        if (!Failed("read", read)) on_done_(Compare());
      });
    });
  }
  absl::Status Compare() const {
    const std::optional<size_t> wrong = FirstWrongByte(response_);
    if (!wrong.has_value()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(worker_, ": byte ", *wrong, " of ", response_.size(), " is wrong"));
  }
  bool Failed(const char* what, const error_code& error) {
    if (error) on_done_(absl::UnavailableError(absl::StrCat(worker_, ": ", what, ": ", error.message())));
    return error.failed();
  }

  tcp::socket socket_;
  const std::string worker_;
  const tcp::endpoint via_;
  OnDone on_done_;
  ByteRequest request_;
  std::string head_;
  std::string response_;
};

class TunnelCaller final : public BlockCaller {
 public:
  TunnelCaller(const std::vector<std::string>& workers, const std::string& via) {
    for (const std::string& worker : workers) {
      tunnels_.push_back(std::make_unique<ByteTunnel>(context_, worker, EndpointOf(via)));
    }
  }

  absl::Status Call(const std::vector<v1::AnswerRequest>& requests, absl::Duration timeout,
                    BlockRecord& record) override {
    absl::Status failed;
    size_t left = tunnels_.size();
    for (size_t i = 0; i < tunnels_.size(); ++i) {
      tunnels_[i]->Exchange(requests[i], [&, i](const absl::Status& status) {
        --left;
        failed.Update(status);
        if (status.ok()) record.bytes += requests[i].response_bytes();
        if (!status.ok() || left == 0) context_.stop();
      });
    }
    context_.restart();
    context_.run_for(absl::ToChronoNanoseconds(timeout));
    if (left == 0 && failed.ok()) return failed;
    const absl::Status why =
        failed.ok() ? absl::DeadlineExceededError(absl::StrCat(left, " responses are late")) : failed;
    for (const auto& tunnel : tunnels_) tunnel->Close();
    context_.restart();
    context_.run();  // the handlers refer to this call
    return why;
  }

 private:
  asio::io_context context_{1};
  std::vector<std::unique_ptr<ByteTunnel>> tunnels_;
};

}  // namespace

std::unique_ptr<BlockCaller> MakeTunnelCaller(const std::vector<std::string>& workers, const std::string& via) {
  return std::make_unique<TunnelCaller>(workers, via);
}

}  // namespace sluice::testbed
