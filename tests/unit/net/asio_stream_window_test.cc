// The window that a stream grants its peer, on real sockets.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/asio_executor.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/send_window.h"
#include "tests/unit/net/test_listener.h"

namespace sluice {
namespace {

using testing::EventLog;
using testing::RunOn;
using testing::SendUntilFull;
using testing::SendWindow;
using testing::TestListener;

// Counts received bytes: a stream with its own thread may read some before SetReading(false) reaches it.
struct Counter final : StreamSocketEvents {
  void OnConnected() override {}
  void OnBytes(absl::string_view bytes) override { read_bytes += static_cast<int>(bytes.size()); }
  void OnDisconnected(absl::Status) override {}

  int read_bytes = 0;
};

class AsioStreamWindowTest : public ::testing::TestWithParam<size_t> {
 protected:
  // The window for a peer's first bytes, and the total that a peer could send to a stream that does not read. The total
  // excludes the bytes that the stream had already read.
  struct Seen {
    int window_bytes = 0;
    int taken_bytes = 0;
  };
  Seen See(int receive_buffer_bytes) {
    EventLog log;
    TestListener listener("127.0.0.1:0", [&](int fd) {
      log.Add(absl::StrCat(SendWindow(fd)));
      log.Add(absl::StrCat(SendUntilFull(fd, size_t{256} << 20)));
    });
    Counter events;
    std::unique_ptr<StreamSocket> socket;
    RunOn(executor_, [&] {
      socket = executor_.Connect(listener.address(), {.receive_buffer_bytes = receive_buffer_bytes}, events);
      socket->SetReading(false);
    });
    Seen seen;
    const std::vector<std::string> figures = log.Await(2);
    EXPECT_TRUE(absl::SimpleAtoi(figures.at(0), &seen.window_bytes));
    EXPECT_TRUE(absl::SimpleAtoi(figures.at(1), &seen.taken_bytes));
    RunOn(executor_, [&] {
      socket.reset();
      seen.taken_bytes -= events.read_bytes;
    });
    return seen;
  }

  AsioExecutor executor_{AsioExecutor::Options{.on_timer_lateness = nullptr, .stream_threads = GetParam()}};
};

INSTANTIATE_TEST_SUITE_P(StreamThreads, AsioStreamWindowTest, ::testing::Values(0, 1));

TEST_P(AsioStreamWindowTest, AReceiveBufferBoundsItFromTheFirstPacketOn) {
  constexpr int kBytes = 16 << 10;
  const Seen bounded = See(kBytes);
  EXPECT_GT(bounded.window_bytes, 0);
  EXPECT_LE(bounded.window_bytes, 2 * kBytes) << "the kernel doubles it, for what packets need beside their bytes";
  EXPECT_GT(bounded.taken_bytes, 0);
  EXPECT_LE(bounded.taken_bytes, 2 * kBytes);
  const Seen free = See(0);
  EXPECT_GT(free.window_bytes, 2 * kBytes);
  EXPECT_GT(free.taken_bytes, 2 * kBytes);
}

}  // namespace
}  // namespace sluice
