// ReceiveWindow on real sockets, whose packets have a chosen size.
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>  // Boost 1.74 needs it and does not include it in C++20
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "gtest/gtest.h"
#include "lib/tcp/tcp_connection.h"
#include "tests/unit/net/send_window.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""s;
using testing::SendWindow;

constexpr int kPayloadBytes = 1448;
constexpr int kTimestampBytes = 12;  // of each packet, as the option of TCP

int Option(int fd, int level, int option) {
  int value = 0;
  socklen_t bytes = sizeof(value);
  EXPECT_EQ(getsockopt(fd, level, option, &value, &bytes), 0);
  return value;
}
void SetOption(int fd, int level, int option, int value) {
  EXPECT_EQ(setsockopt(fd, level, option, &value, sizeof(value)), 0);
}

// A worker and a proxy over loopback. The proxy's receive window begins with `window_bytes`.
class WindowPair {
 public:
  WindowPair(int payload_bytes, int window_bytes) : packet_(static_cast<size_t>(payload_bytes), 'x') {
    using boost::asio::ip::tcp;
    tcp::acceptor acceptor(context_, tcp::v4());
    SetOption(acceptor.native_handle(), IPPROTO_TCP, TCP_MAXSEG, payload_bytes + kTimestampBytes);
    acceptor.bind({boost::asio::ip::address_v4::loopback(), 0});
    acceptor.listen();
    proxy_.open(tcp::v4());
    SetOption(fd(), IPPROTO_TCP, TCP_MAXSEG, payload_bytes + kTimestampBytes);
    SetUpTcp(fd(), 0, ReceiveBufferFor(window_bytes));
    proxy_.connect(acceptor.local_endpoint());
    acceptor.accept(worker_);
    worker_.set_option(tcp::no_delay(true));
    EXPECT_EQ(Info().packet_payload_bytes, static_cast<uint32_t>(payload_bytes));
  }

  int fd() { return proxy_.native_handle(); }
  int receive_buffer_bytes() { return Option(fd(), SOL_SOCKET, SO_RCVBUF); }
  int clamp_bytes() { return Option(fd(), IPPROTO_TCP, TCP_WINDOW_CLAMP); }
  int advertised_bytes() { return static_cast<int>(SendWindow(worker_.native_handle())); }
  int unread_bytes() { return static_cast<int>(proxy_.available()); }
  TcpInfo Info() {
    TcpInfo info;
    EXPECT_TRUE(ReadTcpInfo(worker_.native_handle(), info));
    return info;
  }

  // The worker sends pieces, and the proxy reads each of them at once.
  void Pass(int pieces, const std::string& piece) {
    for (int i = 0; i < pieces; ++i) {
      boost::asio::write(worker_, boost::asio::buffer(piece));
      Read(piece.size());
    }
  }
  void Pass(int packets) { Pass(packets, packet_); }
  // The worker sends packets, and the proxy reads them after all have come.
  void SendAtOnce(int packets) {
    const std::vector<char> bytes(packets * packet_.size());
    boost::asio::write(worker_, boost::asio::buffer(bytes));
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (proxy_.available() < bytes.size() && std::chrono::steady_clock::now() < deadline) {
    }
    Read(bytes.size());
  }
  void Read(size_t bytes) {
    std::vector<char> read(bytes);
    boost::asio::read(proxy_, boost::asio::buffer(read));
  }
  // A request acknowledges all that has come.
  void Request() {
    char byte = 'x';
    boost::asio::write(proxy_, boost::asio::buffer(&byte, 1));
    boost::asio::read(worker_, boost::asio::buffer(&byte, 1));
  }
  // The worker sends as much as its kernel takes, and the proxy reads nothing. Returns the bytes.
  size_t SendUntilFull() {
    worker_.non_blocking(true);
    size_t sent = 0;
    boost::system::error_code error;
    const std::string bytes(256 << 10, 'x');
    sent = worker_.write_some(boost::asio::buffer(bytes), error);
    worker_.non_blocking(false);
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (advertised_bytes() > 0 && std::chrono::steady_clock::now() < deadline) {
    }
    return sent;
  }

 private:
  boost::asio::io_context context_;
  boost::asio::ip::tcp::socket proxy_{context_};
  boost::asio::ip::tcp::socket worker_{context_};
  const std::string packet_;
};

// A window of the given number of packets, which the kernel has measured.
class TcpReceiveWindowTest : public ::testing::TestWithParam<int> {
 protected:
  TcpReceiveWindowTest() {
    window_.Set(pair_.fd(), bytes_);
    for (int i = 0; i < 3; ++i) {
      pair_.Pass(20);
      window_.Set(pair_.fd(), bytes_);
    }
  }

  const int bytes_ = GetParam() * kPayloadBytes;
  WindowPair pair_{kPayloadBytes, bytes_};
  ReceiveWindow window_;
};

TEST_P(TcpReceiveWindowTest, SlidesAndIsWholeAgain) {
  for (int i = 0; i < 50; ++i) {
    pair_.Pass(1);
    EXPECT_LE(pair_.advertised_bytes(), bytes_);
  }
  pair_.Pass(1, std::string(100, 'x'));
  pair_.Request();
  EXPECT_EQ(pair_.advertised_bytes(), bytes_);
}

TEST_P(TcpReceiveWindowTest, BoundsTheBytesThatNobodyReads) {
  const size_t sent = pair_.SendUntilFull();
  EXPECT_GE(pair_.unread_bytes(), bytes_);
  // Packets that lie behind each other share their memory.
  EXPECT_LE(pair_.unread_bytes(), GetParam() < 5 ? bytes_ : 2 * bytes_);
  pair_.Read(sent);
}

// Unread bytes that have come stay, although they are more than the new window.
TEST_P(TcpReceiveWindowTest, ANarrowerWindowLosesNothing) {
  const size_t sent = pair_.SendUntilFull();
  window_.Set(pair_.fd(), kPayloadBytes);
  pair_.Read(sent);
  pair_.Pass(20);
  pair_.Request();
  EXPECT_EQ(pair_.advertised_bytes(), kPayloadBytes);
}

// The kernel drops what has no room in the buffer, and the worker would wait for a timeout.
TEST_P(TcpReceiveWindowTest, ANarrowerWindowHasRoomForWhatWasAdvertised) {
  window_.Set(pair_.fd(), kPayloadBytes);
  pair_.SendAtOnce(GetParam());
  EXPECT_LE(pair_.Info().retransmitted_packets, 1U) << "a loss probe, since nobody reads";
  pair_.Pass(20);
  window_.Set(pair_.fd(), kPayloadBytes);
  pair_.Pass(20);
  pair_.Request();
  EXPECT_EQ(pair_.advertised_bytes(), kPayloadBytes);
}

TEST_P(TcpReceiveWindowTest, AWiderWindowOpensAsBytesAreRead) {
  window_.Set(pair_.fd(), 2 * bytes_);
  pair_.Pass(20);
  pair_.Request();
  EXPECT_EQ(pair_.advertised_bytes(), 2 * bytes_);
}

INSTANTIATE_TEST_SUITE_P(Packets, TcpReceiveWindowTest, ::testing::Values(2, 3, 8, 16));

// The kernel needs more memory for packets of this size than it expects at first. TCP_WINDOW_CLAMP, which it overwrites
// when it has measured them, says for how many bytes the buffer has room.
TEST(TcpReceiveWindowMemoryTest, FullPacketsShowHowMuchMemoryTheyTake) {
  constexpr int kSmallPayload = 600;
  constexpr int kWindow = 4 * kSmallPayload;
  WindowPair pair(kSmallPayload, kWindow);
  ReceiveWindow window;
  window.Set(pair.fd(), kWindow);
  const double before = pair.receive_buffer_bytes();
  pair.Pass(20);
  const int measured_bytes = pair.clamp_bytes();
  ASSERT_LT(measured_bytes, kWindow);
  window.Set(pair.fd(), kWindow);
  EXPECT_EQ(pair.clamp_bytes(), kWindow);
  const double room_bytes = measured_bytes * pair.receive_buffer_bytes() / before;
  EXPECT_GE(room_bytes, kWindow);
  EXPECT_LT(room_bytes, 1.37 * kWindow);
}

TEST(TcpReceiveWindowMemoryTest, SmallPacketsDoNot) {
  constexpr int kWindow = 4 * kPayloadBytes;
  WindowPair pair(kPayloadBytes, kWindow);
  ReceiveWindow window;
  window.Set(pair.fd(), kWindow);
  const int before = pair.receive_buffer_bytes();
  pair.Pass(20, std::string(600, 'x'));
  ASSERT_NE(pair.clamp_bytes(), kWindow) << "the kernel measures them, too";
  window.Set(pair.fd(), kWindow);
  EXPECT_EQ(pair.receive_buffer_bytes(), before);
  EXPECT_EQ(pair.clamp_bytes(), kWindow);
}

TEST(TcpReceiveWindowCallsTest, NothingIsSetIfNothingHasChanged) {
  constexpr int kWindow = 4 * kPayloadBytes;
  WindowPair pair(kPayloadBytes, kWindow);
  ReceiveWindow window;
  window.Set(pair.fd(), kWindow);
  SetOption(pair.fd(), SOL_SOCKET, SO_RCVBUF, 100'000);
  const int by_hand = pair.receive_buffer_bytes();
  window.Set(pair.fd(), kWindow);
  EXPECT_EQ(pair.receive_buffer_bytes(), by_hand);
  window.Set(pair.fd(), kWindow + kPayloadBytes);
  EXPECT_LT(pair.receive_buffer_bytes(), by_hand);
  EXPECT_EQ(pair.clamp_bytes(), kWindow + kPayloadBytes);
}

}  // namespace
}  // namespace sluice
