// WebSockets of a stock library in scheduled tunnels: the server sends messages that nobody has asked for.
#include <chrono>
#include <string>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/websocket.hpp>
#include <unistd.h>

#include "tests/unit/proxy/scheduled_tunnel_fixture.h"

namespace sluice::testing {
namespace {

namespace beast = boost::beast;
using std::chrono_literals::operator""ms;
using boost::asio::ip::tcp;

using WebSocket = beast::websocket::stream<tcp::socket>;

class TunnelWebSocketTest : public ScheduledTunnelTest {
 protected:
  static constexpr int kPushes = 20;

  static WebSocket OverSocket(boost::asio::io_context& context, int fd) {
    WebSocket stream(tcp::socket(context, tcp::v4(), dup(fd)));
    stream.binary(true);
    stream.read_message_max(0);
    return stream;
  }
  static std::string MessageOf(size_t bytes) {
    std::string message(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) message[i] = static_cast<char>(i * 2654435761U / 4096);
    return message;
  }
  static std::string Read(WebSocket& stream) {
    beast::flat_buffer buffer;
    stream.read(buffer);
    return beast::buffers_to_string(buffer.data());
  }
  double Surprises() { return SumOf(registry_, "sluice_tunnel_surprises_total", "", ""); }
};

TEST_F(TunnelWebSocketTest, EveryPushedMessageComesAndIsAWrongGuess) {
  EventLog pushes;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    boost::asio::io_context context;
    WebSocket stream = OverSocket(context, fd);
    stream.accept();
    for (int i = 1; i <= kPushes; ++i) {
      pushes.Await(i);
      stream.write(boost::asio::buffer(MessageOf(500 * i)));
    }
    boost::system::error_code closed;
    beast::flat_buffer buffer;
    stream.read(buffer, closed);
  });
  const TestSocket tunnel = Dial(worker.address().text);
  boost::asio::io_context context;
  WebSocket stream = OverSocket(context, tunnel.fd());
  stream.handshake("localhost", "/");
  for (int i = 1; i <= kPushes; ++i) {
    PutForward(200ms);  // the tunnel is quiet
    EXPECT_TRUE(AwaitTurns(0));
    EXPECT_EQ(ChargedBytes(), 0);
    EXPECT_EQ(Surprises(), i - 1);
    pushes.Add("");
    EXPECT_EQ(Read(stream), MessageOf(500 * i));
  }
  stream.close(beast::websocket::close_code::normal);
}

TEST_F(TunnelWebSocketTest, PingsAndLargeMessagesPassBothWays) {
  executor_.Await([&] { names_.StartClock(); });
  constexpr size_t kLargeBytes = 1 << 20;
  constexpr int kRounds = 3;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    boost::asio::io_context context;
    WebSocket stream = OverSocket(context, fd);
    stream.accept();
    for (int i = 0; i < kRounds; ++i) {
      stream.ping("server");
      const std::string message = Read(stream);
      stream.write(boost::asio::buffer(message));
    }
    boost::system::error_code closed;
    beast::flat_buffer buffer;
    stream.read(buffer, closed);
  });
  const TestSocket tunnel = Dial(worker.address().text);
  boost::asio::io_context context;
  WebSocket stream = OverSocket(context, tunnel.fd());
  int pings = 0;
  int pongs = 0;
  stream.control_callback([&](beast::websocket::frame_type kind, beast::string_view) {
    pings += kind == beast::websocket::frame_type::ping ? 1 : 0;
    pongs += kind == beast::websocket::frame_type::pong ? 1 : 0;
  });
  stream.handshake("localhost", "/");
  const std::string message = MessageOf(kLargeBytes);
  for (int i = 0; i < kRounds; ++i) {
    stream.ping("client");
    stream.write(boost::asio::buffer(message));
    EXPECT_TRUE(Read(stream) == message);
  }
  EXPECT_EQ(pings, kRounds);
  EXPECT_EQ(pongs, kRounds);
  stream.close(beast::websocket::close_code::normal);
  EXPECT_TRUE(AwaitTurns(0));
  EXPECT_EQ(ChargedBytes(), 0);
}

}  // namespace
}  // namespace sluice::testing
