#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lib/telemetry/tcp_socket.h"

namespace boost::asio {
class io_context;
}

namespace sluice {

// Looks at the TCP connections of this process again and again, on the thread of an io_context. One for whoever wants
// to know. However many connections there are, looking takes at most 3 % of one processor: the more a look costs,
// the rarer it is.
class TcpSampler {
 public:
  struct Options {
    absl::Duration period = absl::Milliseconds(100);  // between two looks, at least; above 0
    // Before each look: false skips it. Default: always.
    std::function<bool()> wanted;
    // After each look, at `now`.
    std::function<void(std::chrono::steady_clock::time_point now, absl::Span<const TcpSocket> sockets)> on_sample;
  };

  // Unavailable: see SocketDiag. The context outlives the sampler, and runs until it is gone.
  static absl::StatusOr<std::unique_ptr<TcpSampler>> Start(boost::asio::io_context& context, Options options);

  // After it nothing of Options is called. Not on the context's thread.
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
