// The response to CONNECT: it reports whether the target accepts a TCP connection.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>

#include "lib/net/worker_address.h"
#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/proxy_loop_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kTlsBytes("\x16\x03\x01 hello", 9);

class ConnectTest : public ProxyLoopTest {
 protected:
  TestSocket Request(const std::string& target, const std::string& early = "") {
    TestSocket socket = ConnectTo(listener_->address());
    socket.Send(absl::StrCat("CONNECT ", target, " HTTP/1.1\r\nHost: ", target, "\r\n\r\n", early));
    return socket;
  }
  // Returns an open tunnel.
  TestSocket Dial(const std::string& target, const std::string& early = "") {
    TestSocket socket = Request(target, early);
    EXPECT_THAT(socket.ReceiveUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
    return socket;
  }
  // The complete response to a refused CONNECT.
  std::string Refusal(const std::string& target, const std::string& early = "") {
    return Request(target, early).ReceiveAll();
  }
  size_t Connections() {
    size_t connections = 0;
    executor_.Await([&] { connections = proxy_->connections(); });
    return connections;
  }
};

TEST_F(ConnectTest, IsRefusedIfNoProcessListens) {
  StartProxy();
  const std::string nobody = AddressOfNobody().text;
  const std::string refusal = Refusal(nobody);
  EXPECT_THAT(refusal, StartsWith("HTTP/1.1 502 Bad Gateway\r\n"));
  const std::string why = absl::StrCat("connect to ", nobody, ": Connection refused");
  EXPECT_THAT(refusal, HasSubstr(absl::StrCat("; error=destination_unavailable; details=\"", why, "\"\r\n")));
  EXPECT_THAT(refusal, ::testing::EndsWith(absl::StrCat("\r\n\r\n", why, "\n")));
}

TEST_F(ConnectTest, ARefusalNamesTheTargetAndItsAddresses) {
  StartProxy();
  const std::vector<std::string> nobody = {AddressOfNobody().text, AddressOfNobody().text};
  SetName("gone.test:1", nobody);
  EXPECT_THAT(Refusal("gone.test:1"), AllOf(StartsWith("HTTP/1.1 502 "), HasSubstr("\ngone.test:1: connect to "),
                                            HasSubstr(nobody[0]), HasSubstr(nobody[1])));
  SetName("unknown.test:1", absl::NotFoundError("look up \"unknown\": no such name"));
  EXPECT_THAT(Refusal("unknown.test:1"),
              AllOf(StartsWith("HTTP/1.1 502 "), HasSubstr("; error=dns_error; "),
                    HasSubstr("details=\"unknown.test:1: look up \\\"unknown\\\": no such name\"")));
}

TEST_F(ConnectTest, EarlyBytesDoNotChangeARefusal) {
  StartProxy();
  const std::string nobody = AddressOfNobody().text;
  EXPECT_THAT(Refusal(nobody, absl::StrCat(raw::kPreface, raw::Settings())), StartsWith("HTTP/1.1 502 "));
  EXPECT_THAT(Refusal(nobody, kTlsBytes), StartsWith("HTTP/1.1 502 "));
}

// A listener whose queue is full drops the SYN.
TEST_F(ConnectTest, ATargetThatDoesNotRespondIsATimeout) {
  StartProxy({.opening_timeout = std::chrono::milliseconds(200)});
  const SilentAddress silent;
  EXPECT_THAT(Refusal(silent.address().text),
              AllOf(StartsWith("HTTP/1.1 504 Gateway Timeout\r\n"), HasSubstr("; error=connection_timeout; "),
                    HasSubstr(absl::StrCat("\n", silent.address().text,
                                           ": no connection within limits.opening_timeout, "
                                           "200ms"))));
  EXPECT_TRUE(Eventually([&] { return Connections() == 0; }));
}

TEST_F(ConnectTest, AClientThatDisconnectsEndsItsDial) {
  StartProxy();
  const SilentAddress silent;
  {
    TestSocket socket = Request(silent.address().text, "early");
    ASSERT_TRUE(Eventually([&] { return ConnectedTo() == std::vector<std::string>{silent.address().text}; }));
    EXPECT_EQ(Connections(), 1U) << "it counts against limits.connections";
  }
  EXPECT_TRUE(Eventually([&] { return Connections() == 0; }));
}

TEST_F(ConnectTest, IsAnsweredAtOnceIfTheWorkerIsConnected) {
  StartProxy();
  TestHttp2Server worker(Says("!"));
  EXPECT_EQ(Call(*NewClient(), worker.address()), "OK");
  ASSERT_EQ(ConnectedTo().size(), 1U);
  Http2Peer client(Dial(worker.address()));
  EXPECT_EQ(Call(client, "any.name"), "OK");
  EXPECT_EQ(ConnectedTo().size(), 1U);
}

TEST_F(ConnectTest, TheDialledConnectionCarriesAForwardedTunnel) {
  StartProxy();
  TestListener echo("127.0.0.1:0", [](int fd) { SendAll(fd, ReceiveAtLeast(fd, kTlsBytes.size())); });
  TestSocket socket = Dial(echo.address().text);
  EXPECT_EQ(ConnectedTo().size(), 1U);
  socket.Send(kTlsBytes);
  EXPECT_EQ(socket.ReceiveUntil(kTlsBytes), kTlsBytes);
  EXPECT_EQ(ConnectedTo().size(), 1U);
}

TEST_F(ConnectTest, AForwardedTunnelToAConnectedWorkerDialsLater) {
  StartProxy();
  TestHttp2Server worker(Says("!"));
  EXPECT_EQ(Call(*NewClient(), worker.address()), "OK");
  TestSocket socket = Dial(worker.address());
  EXPECT_EQ(ConnectedTo().size(), 1U);
  socket.Send("GET / HTTP/1.1\r\n\r\n");
  socket.ReceiveAll();  // the worker ends it
  EXPECT_EQ(ConnectedTo().size(), 2U);
}

// A tunnel to a server of SMTP, SSH or MySQL.
TEST_F(ConnectTest, TheFirstBytesOfAServerAreKept) {
  StartProxy();
  TestListener server("127.0.0.1:0", [](int fd) {
    SendAll(fd, "220 ready");
    SendAll(fd, ReceiveAtLeast(fd, kTlsBytes.size()));
  });
  TestSocket socket = Request(server.address().text, "");
  std::string received = socket.ReceiveUntil("ready");
  EXPECT_THAT(received, EndsWith("\r\n\r\n220 ready")) << "although the client has sent nothing in the tunnel";
  socket.Send(kTlsBytes);
  EXPECT_EQ(socket.ReceiveUntil(kTlsBytes), kTlsBytes);
}

TEST_F(ConnectTest, AClientMaySendNoMoreWhileItsTargetIsDialled) {
  StartProxy();
  TestListener server("127.0.0.1:0", [](int fd) {
    EXPECT_EQ(HowItEnds(fd), "end");
    SendAll(fd, "220 ready");
  });
  TestSocket socket = Request("slow.test:1");
  EXPECT_TRUE(Eventually([&] { return OpenQuestions("slow.test:1") == 1; }));
  shutdown(socket.fd(), SHUT_WR);
  EXPECT_EQ(Connections(), 1U);
  SetName("slow.test:1", std::vector<std::string>{server.address().text});
  EXPECT_THAT(socket.ReceiveAll(), AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("\r\n\r\n220 ready")));
}

// Redis and memcached take capital letters without an empty line.
TEST_F(ConnectTest, BytesThatCouldBeginHttp1PassAtOnce) {
  StartProxy();
  for (const char* bytes : {"PING", "GET / HTTP/1.1\r\nHost: a\r\n", "Q"}) {
    TestListener echo("127.0.0.1:0", [](int fd) { SendAll(fd, ReceiveAtLeast(fd, 1)); });
    TestSocket socket = Dial(echo.address().text);
    socket.Send(bytes);
    EXPECT_EQ(socket.ReceiveAll(), bytes);
  }
}

// As a byte like others, since a proxy cannot place the mark.
TEST_F(ConnectTest, UrgentBytesPassInTheirPlace) {
  StartProxy();
  const auto send_urgent = [](int fd) {
    SendAll(fd, "ab");
    EXPECT_EQ(send(fd, "!", 1, MSG_OOB), 1);
    SendAll(fd, "cd");
  };
  TestListener server("127.0.0.1:0", [&](int fd) {
    EXPECT_EQ(ReceiveAtLeast(fd, 5), "ab!cd");
    send_urgent(fd);
  });
  TestSocket socket = Dial(server.address().text);
  send_urgent(socket.fd());
  EXPECT_EQ(socket.ReceiveAll(), "ab!cd");
}

TEST_F(ConnectTest, ManyEarlyBytesAreKept) {
  StartProxy();
  const std::string bytes = kTlsBytes + std::string(8 << 20, 'x');
  TestListener echo("127.0.0.1:0", [&](int fd) {
    const std::string received = ReceiveAtLeast(fd, bytes.size());
    SendAll(fd, received == bytes ? "same" : "different");
  });
  std::thread resolves([&] {
    EXPECT_TRUE(Eventually([&] { return OpenQuestions("slow.test:1") == 1; }));
    SetName("slow.test:1", std::vector<std::string>{echo.address().text});
  });
  TestSocket socket = Request("slow.test:1", bytes);
  resolves.join();
  EXPECT_THAT(socket.ReceiveUntil("same"), AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("\r\n\r\nsame")));
}

// The socket of a tunnel may then report bytes after the proxy has stopped reading it.
class ConnectThreadsTest : public ProxyTest {};

TEST_F(ConnectThreadsTest, TheFirstBytesOfAServerAreKept) {
  auto link = Link::Create(Link::Options{.schedule = Ample(), .threads = 3, .watch_connections = false});
  ASSERT_TRUE(link.ok()) << link.status();
  options_.listeners = {{.address = "127.0.0.1:0", .route = ""}};
  options_.workers = {"127.0.0.0/8"};
  auto proxy = ProxyServer::Start(*link, options_);
  ASSERT_TRUE(proxy.ok()) << proxy.status();
  TestListener server("127.0.0.1:0", [](int fd) {
    SendAll(fd, "220 ready");
    SendAll(fd, ReceiveAtLeast(fd, kTlsBytes.size()));
  });
  for (int i = 0; i < 20; ++i) {
    TestSocket socket = ConnectTo((*proxy)->addresses()[0]);
    socket.Send(absl::StrCat("CONNECT ", server.address().text, " HTTP/1.1\r\n\r\n"));
    std::string received = socket.ReceiveUntil("\r\n\r\n");
    EXPECT_THAT(received, StartsWith("HTTP/1.1 200 "));
    socket.Send(kTlsBytes);
    received += socket.ReceiveUntil(kTlsBytes);
    EXPECT_THAT(received, EndsWith("\r\n\r\n220 ready" + kTlsBytes));
  }
}

// A worker of one failed call would be tried again after the back-off, up to 5 s later.
TEST_F(ConnectTest, ASuccessEndsTheBackOffOfTheWorker) {
  StartProxy();
  const std::string address = AddressOfNobody().text;
  const auto before = NewClient();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Call(*before, address).substr(0, 2), "14");
  EXPECT_THAT(Refusal(address), StartsWith("HTTP/1.1 502 "));
  executor_.Await([&] { names_.StopClock(); });  // so that no back-off ends
  TestHttp2Server worker(Says("!"), {.port = ParseWorkerTarget(address)->port});
  Http2Peer client(Dial(address));
  EXPECT_EQ(Call(client, "any.name"), "OK");
}

}  // namespace
}  // namespace sluice::testing
