#include "lib/link/connector.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_metrics.h"
#include "lib/link/worker.h"
#include "prometheus/registry.h"
#include "tests/unit/tls/test_certificates.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;

// A simulated network in virtual time. Its hosts respond when the test makes them. Single-threaded.
class Hosts final : public Executor {
 public:
  class Socket final : public StreamSocket {
   public:
    Socket(Hosts& hosts, std::string address, StreamSocketEvents& events)
        : events(events), address(std::move(address)), hosts_(hosts) {
      hosts_.sockets_.push_back(this);
    }
    ~Socket() override { std::erase(hosts_.sockets_, this); }
    void StartTls() override { tls_started = true; }
    void Write(std::string) override {}
    size_t unsent_bytes() const override { return 0; }
    void SetReading(bool) override {}
    std::optional<TcpSocket> Tcp() const override { return std::nullopt; }

    StreamSocketEvents& events;
    const std::string address;
    bool tls_started = false;

   private:
    Hosts& hosts_;
  };

  TimePoint Now() const override { return now_; }
  void Post(std::function<void()> task) override { posted_.push_back(std::move(task)); }
  void SetEndOfTurn(std::function<void()> task) override { end_of_turn_ = std::move(task); }
  void SetTimer(TimePoint time, std::function<void()>) override { timer_ = time; }
  double Random() override { return 0.5; }
  std::shared_ptr<void> Resolve(const std::string& target, OnResolved on_resolved) override {
    auto question = std::make_shared<OnResolved>(std::move(on_resolved));
    Post([this, weak = std::weak_ptr<OnResolved>(question), target] {
      if (const auto asked = weak.lock()) {
        const OnResolved answer = *asked;  // the callback may destroy the query
        if (!name_server.ok()) return answer(name_server);
        const auto name = names.find(target);
        answer(name != names.end() ? name->second : std::vector<WorkerAddress>{{target}});
      }
    });
    return question;
  }
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress& address, const ConnectOptions& options,
                                        StreamSocketEvents& events) override {
    EXPECT_EQ(options.tls_later, options.tls != nullptr);
    ++attempts_;
    return std::make_unique<Socket>(*this, address.text, events);
  }

  // Runs due events in turns, for this time.
  void Run(std::chrono::nanoseconds time) {
    const TimePoint end = now_ + time;
    while (true) {
      while (!posted_.empty()) {
        const std::function<void()> task = std::move(posted_.front());
        posted_.pop_front();
        task();
      }
      end_of_turn_();
      if (!posted_.empty()) continue;
      if (timer_ > end) break;
      now_ = std::max(now_, timer_);
    }
    now_ = end;
  }
  // Returns an open socket to the address, or null.
  Socket* Find(const std::string& address) {
    const auto found =
        std::find_if(sockets_.begin(), sockets_.end(), [&](Socket* socket) { return socket->address == address; });
    return found == sockets_.end() ? nullptr : *found;
  }
  size_t open_sockets() const { return sockets_.size(); }
  int attempts() const { return attempts_; }

  std::map<std::string, std::vector<WorkerAddress>> names;  // with several addresses
  absl::Status name_server;

 private:
  TimePoint now_{std::chrono::seconds(1)};
  TimePoint timer_ = TimePoint::max();
  std::deque<std::function<void()>> posted_;
  std::function<void()> end_of_turn_ = [] {};
  std::vector<Socket*> sockets_;
  int attempts_ = 0;
};

// A link of 100 Mbit/s with a port buffer of 32 KB. Hosts respond only when the test makes them.
class ConnectorTest : public ::testing::Test {
 protected:
  ConnectorTest() {
    ScheduleOptions options;
    options.profile.capacity_bytes_per_second = 12.5e6;
    options.profile.buffer_bytes = 32 << 10;
    loop_ = std::make_unique<LinkLoop>(hosts_, options, metrics_);
  }
  ~ConnectorTest() override {
    workers_.clear();
    loop_.reset();
  }

  std::shared_ptr<Worker> Connect(const std::string& address, bool tls) {
    const auto context = tls ? *loop_->workers().FindTls(certificates_.ClientOptions()) : nullptr;
    workers_.push_back(loop_->workers().Find(address, context));
    workers_.back()->Connect();
    return workers_.back();
  }
  int64_t in_flight_bytes() const { return loop_->schedule().State().in_flight_bytes; }
  int64_t waiting_calls() const { return loop_->schedule().State().waiting_calls; }

  testing::TestCertificates certificates_;
  Hosts hosts_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  LinkMetrics metrics_{*registry_};
  std::unique_ptr<LinkLoop> loop_;
  std::vector<std::shared_ptr<Worker>> workers_;
};

TEST_F(ConnectorTest, UsesTheLastAddressesWhileTheNameServerFails) {
  hosts_.names["w:7000"] = {{"10.0.0.1:7000"}};
  Connect("w:7000", false);
  hosts_.Run(1ms);
  ASSERT_NE(hosts_.Find("10.0.0.1:7000"), nullptr);
  hosts_.name_server = absl::UnavailableError("look up w: try again");
  hosts_.Find("10.0.0.1:7000")->events.OnDisconnected(absl::UnavailableError("reset"));
  hosts_.Run(1000ms);
  ASSERT_NE(hosts_.Find("10.0.0.1:7000"), nullptr);
  EXPECT_EQ(hosts_.attempts(), 2);

  // A name that does not exist any more has no addresses.
  hosts_.name_server = absl::NotFoundError("look up w: there is no such name");
  hosts_.Find("10.0.0.1:7000")->events.OnDisconnected(absl::UnavailableError("reset"));
  hosts_.Run(1000ms);
  hosts_.name_server = absl::UnavailableError("look up w: try again");
  hosts_.Run(10000ms);
  EXPECT_EQ(hosts_.attempts(), 2);
}

// The last addresses may be wrong, because the name server cannot say that the worker has moved.
TEST_F(ConnectorTest, AFailureAtTheLastAddressesNamesThatOfTheNameServer) {
  hosts_.names["w:7000"] = {{"10.0.0.1:7000"}};
  const auto worker = Connect("w:7000", false);
  hosts_.Run(1ms);
  hosts_.name_server = absl::UnavailableError("look up w: try again");
  hosts_.Find("10.0.0.1:7000")->events.OnDisconnected(absl::UnavailableError("reset"));
  hosts_.Run(1000ms);
  hosts_.Find("10.0.0.1:7000")->events.OnDisconnected(absl::UnavailableError("refused"));
  EXPECT_EQ(worker->failure().message(), "w:7000: refused, at the last known address (look up w: try again)");
  hosts_.name_server = absl::OkStatus();
  hosts_.Run(2000ms);
  hosts_.Find("10.0.0.1:7000")->events.OnDisconnected(absl::UnavailableError("refused"));
  EXPECT_EQ(worker->failure().message(), "w:7000: refused");
}

TEST_F(ConnectorTest, IsChargedForTlsOnceTcpIsConnected) {
  Connect("10.0.0.1:7000", true);
  hosts_.Run(1ms);
  ASSERT_NE(hosts_.Find("10.0.0.1:7000"), nullptr);
  EXPECT_LT(in_flight_bytes(), 300) << "a SYN-ACK";
  hosts_.Find("10.0.0.1:7000")->events.OnTcpConnected();
  hosts_.Run(1ms);
  EXPECT_TRUE(hosts_.Find("10.0.0.1:7000")->tls_started);
  EXPECT_GT(in_flight_bytes(), 6000);
}

// Two hundred attempts without a response hold a third of the budget for a stall timeout. They block no handshake of
// other hosts.
TEST_F(ConnectorTest, ConnectsWhileManyHostsAreDead) {
  for (int i = 0; i < 200; ++i) Connect(absl::StrCat("10.0.1.", i, ":7000"), true);
  hosts_.Run(1ms);
  EXPECT_LE(in_flight_bytes(), (32 << 10) / 3);
  EXPECT_GE(hosts_.attempts(), 40);
  Connect("10.0.0.1:7000", true);
  hosts_.Run(2000ms);
  ASSERT_NE(hosts_.Find("10.0.0.1:7000"), nullptr) << "all have been tried once";
  hosts_.Find("10.0.0.1:7000")->events.OnTcpConnected();
  hosts_.Run(10ms);
  EXPECT_TRUE(hosts_.Find("10.0.0.1:7000")->tls_started);
}

// Hosts that failed before are tried after the others.
TEST_F(ConnectorTest, IsConnectedBeforeHostsThatFailedAreTriedAgain) {
  for (int i = 0; i < 1000; ++i) Connect(absl::StrCat("10.0.", i / 250, ".", i % 250, ":7000"), false);
  hosts_.Run(30'000ms);
  ASSERT_GT(hosts_.attempts(), 1000);
  for (int i = 0; i < 10; ++i) {
    const std::string address = absl::StrCat("10.1.0.", i, ":7000");
    Connect(address, true);
    hosts_.Run(350ms);
    ASSERT_NE(hosts_.Find(address), nullptr);
    hosts_.Find(address)->events.OnTcpConnected();
    hosts_.Run(350ms);
    ASSERT_TRUE(hosts_.Find(address)->tls_started);
  }
}

TEST_F(ConnectorTest, TriesAgainIfTheHostEndsTheConnectionWhileTlsWaits) {
  const auto first = Connect("10.0.0.1:7000", true);
  const auto second = Connect("10.0.0.2:7000", true);
  hosts_.Run(1ms);
  hosts_.Find("10.0.0.1:7000")->events.OnTcpConnected();
  hosts_.Find("10.0.0.2:7000")->events.OnTcpConnected();
  hosts_.Run(1ms);
  EXPECT_FALSE(hosts_.Find("10.0.0.2:7000")->tls_started) << "it waits for the first";
  hosts_.Find("10.0.0.2:7000")->events.OnDisconnected(absl::UnavailableError("gone"));
  hosts_.Run(1ms);
  EXPECT_EQ(hosts_.Find("10.0.0.2:7000"), nullptr);
  EXPECT_EQ(waiting_calls(), 0);
  EXPECT_FALSE(second->failure().ok());
  hosts_.Run(500ms);
  EXPECT_NE(hosts_.Find("10.0.0.2:7000"), nullptr);
}

TEST_F(ConnectorTest, ConnectsToTheOtherFamilyIfTheFirstDoesNotRespond) {
  hosts_.names["dual:7000"] = {{"[fd00::1]:7000"}, {"10.0.0.1:7000"}};
  const auto worker = Connect("dual:7000", true);
  hosts_.Run(200ms);
  EXPECT_NE(hosts_.Find("[fd00::1]:7000"), nullptr);
  EXPECT_EQ(hosts_.Find("10.0.0.1:7000"), nullptr);
  hosts_.Run(100ms);
  ASSERT_NE(hosts_.Find("10.0.0.1:7000"), nullptr);
  hosts_.Find("10.0.0.1:7000")->events.OnTcpConnected();
  hosts_.Run(1ms);
  EXPECT_TRUE(hosts_.Find("10.0.0.1:7000")->tls_started);
  EXPECT_EQ(hosts_.Find("[fd00::1]:7000"), nullptr);
  EXPECT_EQ(hosts_.attempts(), 2);
}

TEST_F(ConnectorTest, TriesTheOtherAddressesIfTlsFailsAtOne) {
  hosts_.names["two:7000"] = {{"10.0.0.1:7000"}, {"10.0.0.2:7000"}};
  const auto worker = Connect("two:7000", true);
  for (const char* address : {"10.0.0.1:7000", "10.0.0.2:7000"}) {
    hosts_.Run(1ms);
    ASSERT_NE(hosts_.Find(address), nullptr);
    EXPECT_EQ(hosts_.open_sockets(), 1u);
    EXPECT_TRUE(worker->failure().ok());
    hosts_.Find(address)->events.OnTcpConnected();
    hosts_.Run(1ms);
    hosts_.Find(address)->events.OnDisconnected(absl::UnavailableError(absl::StrCat("wrong certificate of ", address)));
  }
  EXPECT_EQ(worker->failure().message(), "two:7000: wrong certificate of 10.0.0.2:7000");
  hosts_.Run(1000ms);
  EXPECT_NE(hosts_.Find("10.0.0.1:7000"), nullptr) << "after the back-off";
}

TEST_F(ConnectorTest, FailsAfterAllAddressesHaveFailed) {
  hosts_.names["two:7000"] = {{"10.0.0.1:7000"}, {"10.0.0.2:7000"}};
  const auto worker = Connect("two:7000", false);
  hosts_.Run(1ms);
  hosts_.Find("10.0.0.1:7000")->events.OnDisconnected(absl::UnavailableError("refused"));
  hosts_.Run(5200ms);
  EXPECT_TRUE(worker->failure().ok());
  hosts_.Run(100ms);
  EXPECT_EQ(worker->failure().message(), "two:7000: no connection within 5s");
  hosts_.Run(1ms);
  EXPECT_EQ(in_flight_bytes(), 0);
}

TEST_F(ConnectorTest, GivesUpAnAttemptThatHangsInTls) {
  const auto worker = Connect("10.0.0.1:7000", true);
  hosts_.Run(1ms);
  hosts_.Find("10.0.0.1:7000")->events.OnTcpConnected();
  hosts_.Run(4999ms);
  EXPECT_TRUE(worker->failure().ok());
  hosts_.Run(10ms);
  EXPECT_FALSE(worker->failure().ok());
  EXPECT_EQ(hosts_.open_sockets(), 0u);
}

TEST_F(ConnectorTest, LeavesNothingBehindWhenItIsDestroyedInAnyStage) {
  Connect("10.0.0.1:7000", true);
  workers_.clear();
  hosts_.Run(1ms);
  Connect("10.0.0.2:7000", true);
  hosts_.Run(1ms);
  workers_.clear();
  hosts_.Run(1ms);
  Connect("10.0.0.3:7000", true);
  Connect("10.0.0.4:7000", true);
  hosts_.Run(1ms);
  hosts_.Find("10.0.0.3:7000")->events.OnTcpConnected();
  hosts_.Find("10.0.0.4:7000")->events.OnTcpConnected();
  hosts_.Run(1ms);
  workers_.clear();
  hosts_.Run(1000ms);
  EXPECT_EQ(hosts_.open_sockets(), 0u);
  EXPECT_EQ(waiting_calls(), 0);
  EXPECT_EQ(in_flight_bytes(), 0);
}

}  // namespace
}  // namespace sluice
