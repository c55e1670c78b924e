#include "lib/tcp/tcp_sampler.h"

#include <algorithm>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/synchronization/notification.h"
#include "lib/tcp/socket_diag.h"

namespace sluice {
namespace {

constexpr int kCostFactor = 30;  // a sample that takes 10 ms is taken every 300 ms

}  // namespace

// Runs on the context's thread only. There is one for each sampler.
class TcpSampler::Loop : public std::enable_shared_from_this<Loop> {
 public:
  Loop(boost::asio::io_context& context, SocketDiag diag, Options options)
      : timer_(context), diag_(std::move(diag)), options_(std::move(options)) {}

  void Continue(std::chrono::nanoseconds wait) {
    timer_.expires_after(wait);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && !self->stopped_) self->Look();
    });
  }

  void Look() {
    const auto start = std::chrono::steady_clock::now();
    // If the kernel does not respond this time, the next sample may succeed.
    if (!options_.wanted || options_.wanted()) {
      if (const auto sockets = diag_.OwnConnections(); sockets.ok()) options_.on_sample(start, *sockets);
    }
    const auto cost = std::chrono::steady_clock::now() - start;
    Continue(std::max<std::chrono::nanoseconds>(absl::ToChronoNanoseconds(options_.period), kCostFactor * cost));
  }

  void Stop() {
    stopped_ = true;
    timer_.cancel();
  }

 private:
  boost::asio::steady_timer timer_;
  SocketDiag diag_;
  const Options options_;
  bool stopped_ = false;
};

absl::StatusOr<std::unique_ptr<TcpSampler>> TcpSampler::Start(boost::asio::io_context& context, Options options) {
  absl::StatusOr<SocketDiag> diag = SocketDiag::Open();
  if (!diag.ok()) return diag.status();
  // Read once to check that the kernel responds at all.
  if (absl::Status responded = diag->OwnConnections().status(); !responded.ok()) return responded;
  const auto wait = absl::ToChronoNanoseconds(options.period);
  auto loop = std::make_shared<Loop>(context, *std::move(diag), std::move(options));
  boost::asio::post(context, [loop, wait] { loop->Continue(wait); });
  return std::unique_ptr<TcpSampler>(new TcpSampler(context, std::move(loop)));
}

TcpSampler::TcpSampler(boost::asio::io_context& context, std::shared_ptr<Loop> loop)
    : context_(context), loop_(std::move(loop)) {}

TcpSampler::~TcpSampler() {
  absl::Notification stopped;
  boost::asio::post(context_, [this, &stopped] {
    loop_->Stop();
    stopped.Notify();
  });
  stopped.WaitForNotification();
}

}  // namespace sluice
