// Clients that attack: they lose their connection or stay within their bounds, and other clients are served.
#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include <poll.h>
#include <sys/socket.h>

#include "gmock/gmock.h"
#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

class HostileClientTest : public ProxyTest {
 protected:
  void SetUp() override { StartProxy(); }

  TestSocket Begin() const {
    TestSocket socket = ConnectTo(address());
    socket.Send(absl::StrCat(raw::kPreface, raw::Settings(), raw::SettingsAck()));
    return socket;
  }
  // Sends until all bytes are sent or the proxy stops reading, and reads nothing. Returns whether the proxy has closed
  // the connection before it had read all bytes.
  static bool Flood(const TestSocket& socket, const std::string& bytes, int times) {
    for (int i = 0; i < times; ++i) {
      size_t at = 0;
      const bool stopped = !Eventually([&] {
        const ssize_t sent = send(socket.fd(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN) return true;
        at += static_cast<size_t>(std::max<ssize_t>(sent, 0));
        return at == bytes.size();
      });
      if (at < bytes.size()) return !stopped;
    }
    return false;
  }
  // Reads until the proxy closes the connection. The bytes include GOAWAY if no byte is lost.
  static bool Ends(TestSocket& socket) {
    std::array<char, 65536> buffer;
    return Eventually([&] {
      while (true) {
        const ssize_t got = recv(socket.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN) return false;
        if (got <= 0) return true;
      }
    });
  }
  // Whether the proxy reads the bytes this many times from a client that reads no response. False if the proxy stops
  // reading or closes the connection.
  bool TakesAll(const TestSocket& socket, const std::string& bytes, int times) {
    for (int i = 0; i < times; ++i) {
      for (size_t at = 0; at < bytes.size();) {
        const ssize_t sent = send(socket.fd(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN) return false;
        at += static_cast<size_t>(std::max<ssize_t>(sent, 0));
        if (sent >= 0) continue;
        ExpectServes(worker_.address());  // gives the proxy time to read
        pollfd waiting{.fd = socket.fd(), .events = POLLOUT, .revents = 0};
        if (poll(&waiting, 1, /*timeout=*/500) == 0) return false;
      }
    }
    return true;
  }
  static std::string Repeat(const std::string& bytes, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += bytes;
    return all;
  }

  TestHttp2Server worker_{Says("!")};
};

// Rapid reset: CVE-2023-44487.
TEST_F(HostileClientTest, RapidResetsEndTheConnection) {
  TestSocket socket = Begin();
  const std::string head = raw::HeaderBlock(Head(worker_.address()));
  std::string frames;
  for (int32_t stream = 1; stream < 2 * 25'000; stream += 2) {
    frames += raw::Frame(raw::kHeaders, raw::kEndHeaders, stream, head);
    frames += raw::RstStream(stream, 8);
  }
  Flood(socket, frames, 1);
  EXPECT_TRUE(Ends(socket));
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
  ExpectServes(worker_.address());
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(HostileClientTest, PingsThatNobodyReadTheAnswersOfEndOrStop) {
  const TestSocket socket = Begin();
  EXPECT_FALSE(TakesAll(socket, Repeat(raw::Ping(), 1000), 10'000)) << "170 MB";
  ExpectServes(worker_.address());
}

TEST_F(HostileClientTest, PingsAreAnsweredToWhoeverReadsAndOthersGoOn) {
  TestSocket socket = Begin();
  for (int i = 0; i < 20; ++i) {
    Flood(socket, Repeat(raw::Ping(), 500), 1);
    ExpectServes(worker_.address());
    std::array<char, 65536> buffer;
    while (recv(socket.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT) > 0) {
    }
  }
}

TEST_F(HostileClientTest, SettingsWithoutEndEndOrStop) {
  const TestSocket socket = Begin();
  EXPECT_FALSE(TakesAll(socket, Repeat(raw::Settings({{raw::kInitialWindowSize, 70000}}), 1000), 10'000)) << "150 MB";
  ExpectServes(worker_.address());
}

// CONTINUATION flood: CVE-2024-28182.
TEST_F(HostileClientTest, ContinuationsWithoutEndEndTheConnection) {
  TestSocket socket = Begin();
  socket.Send(raw::Frame(raw::kHeaders, raw::kNone, 1, raw::HeaderBlock(Head(worker_.address()))));
  const std::string more =
      raw::Frame(raw::kContinuation, raw::kNone, 1, raw::HeaderBlock({{"x", std::string(1000, 'y')}}));
  Flood(socket, Repeat(more, 100), 100);
  EXPECT_TRUE(Ends(socket));
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
  ExpectServes(worker_.address());
}

TEST_F(HostileClientTest, WhatIsNoHttp2AfterThePrefaceEndsTheConnection) {
  for (const std::string& frames :
       {std::string(100, 'x'), raw::Data(1, "before its headers"), raw::WindowUpdate(0, 0), raw::RstStream(0, 8),
        raw::Headers(2, Head("w:1")), raw::Frame(raw::kPushPromise, raw::kEndHeaders, 1, std::string(4, '\2')),
        raw::WindowUpdate(0, 0x7fffffff) + raw::WindowUpdate(0, 0x7fffffff)}) {
    TestSocket socket = Begin();
    Flood(socket, frames, 1);
    EXPECT_TRUE(Ends(socket));
  }
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
  ExpectServes(worker_.address());
}

// Clients that use gRPC's C core send such resets: see IdleResetFilter.
TEST_F(HostileClientTest, AResetOfAStreamThatWasNeverOpenedIsForgiven) {
  TestSocket socket = Begin();
  socket.Send(raw::RstStream(7, 8));
  socket.Send(raw::Ping());
  EXPECT_THAT(socket.ReceiveUntil("12345678"), ::testing::HasSubstr("12345678"));
}

// A client may send one stream window without a grant.
TEST_F(HostileClientTest, DataBeyondTheWindowEndsItsStream) {
  TestHttp2Server silent([](TestHttp2Server::Call&) {});
  TestSocket socket = Begin();
  socket.Send(raw::Headers(1, Head("no.such.name.invalid:1")));
  Flood(socket, raw::Data(1, std::string(16384, 'x')), 100);
  EXPECT_TRUE(AwaitMetric("sluice_proxy_calls", 0));
  ExpectServes(worker_.address());
}

TEST_F(HostileClientTest, NamesWithoutEndMakeNoTargetsWithoutEnd) {
  proxy_.reset();
  options_.proxy.max_targets = 50;
  StartProxy();
  const auto client = NewClient();
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 1000; }));
  for (int i = 0; i < 200; ++i) client->Open(Head(absl::StrCat("127.1.", i, ".1:1")), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().streams() == 0; }));
  int exhausted = 0;
  for (const auto* call : client->streams()) exhausted += call->status() == "8" ? 1 : 0;
  EXPECT_EQ(exhausted, 150);
}

}  // namespace
}  // namespace sluice::testing
