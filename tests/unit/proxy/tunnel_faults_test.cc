// Scheduled tunnels whose client or worker stops, fails, or sends what nobody has asked for. The other tunnels must go
// on, and the budget must come back.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "absl/strings/match.h"
#include "lib/tcp/tcp_connection.h"
#include "tests/unit/proxy/scheduled_tunnel_fixture.h"

namespace sluice::testing {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::SizeIs;

class TunnelFaultsTest : public ScheduledTunnelTest {
 protected:
  // More than the proxy and the kernel keep of one tunnel.
  static constexpr size_t kLargeBytes = 16 << 20;
  static constexpr int kWindowBytes = 2 * 1448;
  static constexpr int kQuietMs = 300;

  // Bytes whose place can be told from their value.
  static std::string Pattern(size_t bytes) {
    std::string pattern(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<char>('a' + i * 2654435761U / 4096 % 25);
    return pattern;
  }
  void RunClock() {
    executor_.Await([&] { names_.StartClock(); });
  }
  // Lets the proxy look around in each of these seconds, or at least a hundred times.
  void PassTime(std::chrono::seconds time) {
    const int looks = static_cast<int>(std::min<int64_t>(time.count(), 100));
    for (int i = 0; i < looks; ++i) PutForward(std::chrono::nanoseconds(time) / looks);
  }
  void Restart(const ProxyOptions& options) {
    TearDown();
    StartProxy(options, TwoWindows());
    RunClock();
  }
  // Sends until nobody takes more. Returns the number of sent bytes.
  static size_t SendWhileTaken(int fd, absl::string_view bytes) {
    size_t sent = 0;
    pollfd state{fd, POLLOUT, 0};
    while (sent < bytes.size() && poll(&state, 1, kQuietMs) == 1) {
      const ssize_t taken = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (taken < 0 && errno != EAGAIN) break;  // the tunnel has ended
      if (taken > 0) sent += static_cast<size_t>(taken);
    }
    return sent;
  }
  // Receives until nothing comes.
  static std::string ReceiveWhileItComes(int fd) {
    std::string received;
    std::string part(64 << 10, '\0');
    pollfd state{fd, POLLIN, 0};
    while (poll(&state, 1, kQuietMs) == 1) {
      const ssize_t got = recv(fd, part.data(), part.size(), MSG_DONTWAIT);
      if (got <= 0) break;
      received.append(part, 0, static_cast<size_t>(got));
    }
    return received;
  }
  // A client that reads nothing of its response, which fills the proxy and the sockets.
  class StuckClient {
   public:
    StuckClient(const TunnelFaultsTest& test, size_t bytes)
        : response_(Pattern(bytes) + "!"),
          worker_("127.0.0.1:0", [this](int fd) { Serve(fd); }),
          client_(test.Dial(worker_.address().text)) {
      client_.Send("?");
      EXPECT_THAT(full_.Await(1), SizeIs(1));
    }

    TestSocket& client() { return client_; }
    const std::string& response() const { return response_; }

   private:
    void Serve(int fd) {
      ReceiveAtLeast(fd, 1);
      const size_t taken = SendWhileTaken(fd, response_);
      full_.Add("");
      SendAll(fd, absl::string_view(response_).substr(taken));
      ReceiveAll(fd);
    }

    const std::string response_;
    EventLog full_;
    TestListener worker_;
    TestSocket client_;
  };
  double Surprises() { return SumOf(registry_, "sluice_tunnel_surprises_total", "", ""); }
  double Connections() { return SumOf(registry_, "sluice_proxy_connections", "", ""); }
  // Another tunnel asks, and its response comes.
  void ExpectOthersAreServed() {
    Pair& other = Add("other");
    other.client().Send("?");
    const std::string response = Pattern(100'000) + "!";
    other.Answer(response);
    EXPECT_EQ(other.client().ReceiveUntil("!"), response);
  }
};

TEST_F(TunnelFaultsTest, AClientThatReadsNothingForAnHourLosesNothing) {
  RunClock();
  StuckClient stuck(*this, kLargeBytes);
  PassTime(1h);
  EXPECT_EQ(Connections(), 1);
  EXPECT_TRUE(AwaitTurns(0));
  EXPECT_EQ(ChargedBytes(), 0);
  ExpectOthersAreServed();
  EXPECT_EQ(stuck.client().ReceiveUntil("!"), stuck.response());
}

TEST_F(TunnelFaultsTest, AWorkerThatReadsNothingForAnHourLosesNothing) {
  RunClock();
  EventLog go_on;
  EventLog received;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    go_on.Await(1);
    std::string all;
    for (std::string part = "?"; !part.empty() && !absl::EndsWith(all, "!"); all += part) part = ReceiveAtLeast(fd, 1);
    SendAll(fd, "thanks");
    received.Add(std::move(all));
  });
  const std::string request = Pattern(kLargeBytes) + "!";
  TestSocket client = Dial(worker.address().text);
  const size_t taken = SendWhileTaken(client.fd(), request);
  EXPECT_LT(taken, request.size()) << "the proxy and the sockets are full";
  PassTime(1h);
  EXPECT_EQ(Connections(), 1);
  ExpectOthersAreServed();
  go_on.Add("");
  SendAll(client.fd(), absl::string_view(request).substr(taken));
  EXPECT_EQ(client.ReceiveUntil("thanks"), "thanks");
  EXPECT_EQ(received.Await(1).front(), request);
}

TEST_F(TunnelFaultsTest, AnEndThatReadsNothingEndsItsTunnelIfTheOptionsSaySo) {
  Restart({.tunnel_stall_timeout = 10min});
  StuckClient stuck(*this, kLargeBytes);
  PassTime(9min);
  EXPECT_EQ(Connections(), 1);
  PassTime(2min);
  EXPECT_EQ(HowItEnds(stuck.client().fd()), "reset") << "a response that was cut must not seem complete";
}

TEST_F(TunnelFaultsTest, AHalfClosedTunnelWhoseClientReadsNothingEnds) {
  Restart({.half_closed_timeout = 5min});
  StuckClient stuck(*this, kLargeBytes);
  shutdown(stuck.client().fd(), SHUT_WR);
  PassTime(6min);
  EXPECT_EQ(HowItEnds(stuck.client().fd()), "reset");
}

TEST_F(TunnelFaultsTest, AClientThatHoldsTooMuchIsReset) {
  Restart({.max_held_bytes = 1000});
  StuckClient stuck(*this, kLargeBytes);
  PassTime(10s);
  EXPECT_EQ(HowItEnds(stuck.client().fd()), "reset");
  ExpectOthersAreServed();
}

TEST_F(TunnelFaultsTest, AProxyThatEndsResetsItsTunnels) {
  Pair& cut = Add("a");
  cut.client().Send("?");
  cut.Answer("the first part");
  EXPECT_EQ(cut.client().ReceiveUntil("part"), "the first part");
  executor_.Await([&] { proxy_->Close(absl::UnavailableError("the end")); });
  EXPECT_EQ(HowItEnds(cut.client().fd()), "reset");
}

// How one end of a tunnel fails, and how the other end sees it.
struct Fault {
  const char* name;
  void (*at_worker)(int fd);              // after its first part of a response
  void (*at_client)(TestSocket& client);  // after it has received that part
  const char* seen_by_client;             // null: the client is gone
  const char* seen_by_worker;             // null: the worker is gone
};

class TunnelFaultTest : public TunnelFaultsTest, public ::testing::WithParamInterface<Fault> {};

const Fault kFaults[] = {
    {"WorkerIsKilled", [](int) {}, [](TestSocket&) {}, "end", nullptr},
    {"WorkerResets", [](int fd) { Reset(fd); }, [](TestSocket&) {}, "reset", nullptr},
    {"ClientResets", nullptr, [](TestSocket& client) { client.Break(); }, nullptr, "reset"},
    {"ClientHasSentAll", nullptr, [](TestSocket& client) { shutdown(client.fd(), SHUT_WR); }, "end", "end"},
};

INSTANTIATE_TEST_SUITE_P(Faults, TunnelFaultTest, ::testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

// The budget has room for two windows. The tunnel of the fault has one, so the other two tunnels wait for its end.
TEST_P(TunnelFaultTest, EndsOneTunnelAndGivesItsBudgetBack) {
  const Fault& fault = GetParam();
  EventLog seen;
  EventLog fail;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    ReceiveAtLeast(fd, 1);
    SendAll(fd, Pattern(1000) + "|");
    fail.Await(1);
    if (fault.at_worker != nullptr) return fault.at_worker(fd);
    seen.Add(HowItEnds(fd));
  });
  Pair& before = Add("a");
  before.client().Send("?");
  EXPECT_TRUE(AwaitTurns(1));
  TestSocket client = Dial(worker.address().text);
  client.Send("half of a request");
  EXPECT_EQ(client.ReceiveUntil("|"), Pattern(1000) + "|");
  Pair& after = Add("b");
  after.client().Send("?");
  EXPECT_THAT(requests_.Await(1), ElementsAre("a ?"));
  fail.Add("");
  fault.at_client(client);
  if (fault.seen_by_worker != nullptr) {
    EXPECT_THAT(seen.Await(1), ElementsAre(fault.seen_by_worker));
  }
  if (fault.seen_by_client != nullptr) {
    EXPECT_EQ(HowItEnds(client.fd()), fault.seen_by_client);
  }
  EXPECT_TRUE(AwaitTurns(2)) << "those of the others";
  PutForward(10ms);
  EXPECT_THAT(requests_.Await(2), ElementsAre("a ?", "b ?"));
  for (Pair* pair : {&before, &after}) {
    pair->Answer("whole!");
    EXPECT_EQ(pair->client().ReceiveUntil("!"), "whole!");
  }
  PutForward(10ms);
  EXPECT_TRUE(AwaitTurns(0));
  EXPECT_EQ(ChargedBytes(), 0);
}

// Two other tunnels have the whole budget, so a worker that pushes has no turn.
TEST_F(TunnelFaultsTest, AWorkerThatPushesOverflowsByOneWindow) {
  for (const char* name : {"a", "b"}) Add(name).client().Send("?");
  EXPECT_THAT(requests_.Await(2), SizeIs(2));
  const std::string pushed = Pattern(1 << 20) + "!";
  TestListener worker("127.0.0.1:0", [&](int fd) {
    SendAll(fd, pushed);
    ReceiveAll(fd);
  });
  TestSocket client = ConnectTo(listener_->address());
  client.Send(absl::StrCat("CONNECT ", worker.address().text, " HTTP/1.1\r\n\r\n"));
  const std::string head = client.ReceiveUntil("\r\n\r\n");
  EXPECT_TRUE(AwaitTurns(3));
  EXPECT_EQ(Surprises(), 1);
  const std::string first = head.substr(head.find("\r\n\r\n") + 4) + ReceiveWhileItComes(client.fd());
  EXPECT_GT(first.size(), 0U);
  EXPECT_LE(static_cast<int>(first.size()), ReceiveBufferFor(kWindowBytes)) << "without a turn";
  RunClock();  // the others think for longer than their tunnels wait
  PutForward(200ms);
  EXPECT_EQ(first + client.ReceiveUntil("!"), pushed);
}

TEST_F(TunnelFaultsTest, EachPauseWithinAResponseIsOneWrongGuess) {
  EventLog go_on;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    ReceiveAtLeast(fd, 1);
    for (size_t part = 1; part <= 5; ++part) {
      SendAll(fd, Pattern(2000) + "|");
      go_on.Await(part);
    }
  });
  TestSocket client = Dial(worker.address().text);
  client.Send("?");
  for (int part = 1; part <= 5; ++part) {
    EXPECT_EQ(client.ReceiveUntil("|"), Pattern(2000) + "|");
    EXPECT_LE(ChargedBytes(), 3 * kWindowBytes);
    EXPECT_EQ(Surprises(), part - 1);
    PutForward(100ms);
    EXPECT_TRUE(AwaitTurns(0));
    go_on.Add("");
  }
}

TEST_F(TunnelFaultsTest, ResponsesToPipelinedRequestsComeWhole) {
  EventLog go_on;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    for (size_t i = 1; i <= 4; ++i) {
      ReceiveAtLeast(fd, i == 1 ? 4 : 0);
      SendAll(fd, Pattern(3000 * i) + "|");
      go_on.Await(i);
    }
  });
  TestSocket client = Dial(worker.address().text);
  client.Send("????");
  for (size_t i = 1; i <= 4; ++i) {
    EXPECT_EQ(client.ReceiveUntil("|"), Pattern(3000 * i) + "|");
    EXPECT_LE(Surprises(), static_cast<double>(i - 1)) << "one for each response that came without a request";
    PutForward(100ms);
    EXPECT_TRUE(AwaitTurns(0));
    go_on.Add("");
  }
}

}  // namespace
}  // namespace sluice::testing
