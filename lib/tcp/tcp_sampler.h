#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lib/tcp/tcp_socket.h"

namespace boost::asio {
class io_context;
}

namespace sluice {

// Samples the TCP connections of this process periodically, on the thread of an io_context. With any number of
// connections it takes at most 3 % of one CPU: a more expensive sample is taken more rarely.
class TcpSampler {
 public:
  struct Options {
    absl::Duration period = absl::Milliseconds(100);  // minimum time between two samples; above 0
    // Called before each sample; false skips it. Default: always sample.
    std::function<bool()> wanted;
    // Called after each sample, which was taken at `now`.
    std::function<void(std::chrono::steady_clock::time_point now, absl::Span<const TcpSocket> sockets)> on_sample;
  };

  // Returns Unavailable as SocketDiag does. The context must outlive the sampler, and run until it is gone.
  static absl::StatusOr<std::unique_ptr<TcpSampler>> Start(boost::asio::io_context& context, Options options);

  // No callback of Options is called after this. Do not call it on the context's thread.
  ~TcpSampler();
  TcpSampler(const TcpSampler&) = delete;
  TcpSampler& operator=(const TcpSampler&) = delete;

 private:
  class Loop;
  TcpSampler(boost::asio::io_context& context, std::shared_ptr<Loop> loop);

  boost::asio::io_context& context_;
  const std::shared_ptr<Loop> loop_;
};

}  // namespace sluice
