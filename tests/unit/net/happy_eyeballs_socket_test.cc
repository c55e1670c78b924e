#include "lib/net/happy_eyeballs_socket.h"

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::testing {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;

// A network whose addresses respond when the test makes them.
class ManualNetwork final : public Executor {
 public:
  class Socket final : public StreamSocket {
   public:
    Socket(ManualNetwork& network, std::string address, StreamSocketEvents& events)
        : events(events), network_(network), address_(std::move(address)) {
      network_.sockets[address_] = this;
    }
    ~Socket() override { network_.sockets.erase(address_); }
    void StartTls() override { tls = true; }
    void Write(std::string bytes) override { written += bytes; }
    size_t unsent_bytes() const override { return written.size(); }
    void SetReading(bool is_reading) override { reading = is_reading; }
    std::optional<TcpSocket> Tcp() const override { return std::nullopt; }

    StreamSocketEvents& events;
    std::string written;
    bool reading = true;
    bool tls = false;

   private:
    ManualNetwork& network_;
    const std::string address_;
  };

  TimePoint Now() const override { return now; }
  void Post(std::function<void()>) override {}
  void SetEndOfTurn(std::function<void()>) override {}
  void SetTimer(TimePoint, std::function<void()>) override {}
  double Random() override { return 0.5; }
  std::shared_ptr<void> Resolve(const std::string&, OnResolved) override { return nullptr; }
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress& address, const ConnectOptions&,
                                        StreamSocketEvents& events) override {
    return std::make_unique<Socket>(*this, address.text, events);
  }

  std::vector<std::string> addresses() const {
    std::vector<std::string> open;
    for (const auto& [address, socket] : sockets) open.push_back(address);
    return open;
  }

  TimePoint now{std::chrono::seconds(1)};
  std::map<std::string, Socket*> sockets;  // the open ones
};

class HappyEyeballsSocketTest : public ::testing::Test, public StreamSocketEvents {
 protected:
  void Connect(std::vector<WorkerAddress> addresses) {
    socket_ = std::make_unique<HappyEyeballsSocket>(network_, timers_, std::move(addresses), Executor::ConnectOptions{},
                                                    *this);
  }
  void Wait(std::chrono::milliseconds time) {
    network_.now += time;
    timers_.RunDue(network_.now);
  }
  StreamSocketEvents& At(const std::string& address) { return network_.sockets.at(address)->events; }

  void OnTcpConnected() override { events_.emplace_back("tcp"); }
  void OnConnected() override { events_.emplace_back("connected"); }
  void OnBytes(absl::string_view bytes) override { events_.push_back(absl::StrCat("bytes ", bytes)); }
  void OnDrained() override { events_.emplace_back("drained"); }
  void OnDisconnected(absl::Status why) override { events_.push_back(why.ToString()); }

  ManualNetwork network_;
  TimerQueue timers_;
  std::vector<std::string> events_;
  std::unique_ptr<HappyEyeballsSocket> socket_;
};

TEST_F(HappyEyeballsSocketTest, TheFirstConnectionWinsAndTheOthersEnd) {
  Connect({{"[fd00::1]:1"}, {"[fd00::2]:1"}, {"10.0.0.1:1"}});
  EXPECT_THAT(network_.addresses(), ElementsAre("[fd00::1]:1"));
  Wait(250ms);
  EXPECT_THAT(network_.addresses(), ElementsAre("10.0.0.1:1", "[fd00::1]:1"));
  EXPECT_FALSE(socket_->connected());
  At("10.0.0.1:1").OnConnected();
  EXPECT_TRUE(socket_->connected());
  EXPECT_EQ(socket_->address().text, "10.0.0.1:1");
  EXPECT_THAT(network_.addresses(), ElementsAre("10.0.0.1:1"));
  Wait(1000ms);
  EXPECT_THAT(network_.addresses(), ElementsAre("10.0.0.1:1")) << "and no attempt follows";
  EXPECT_THAT(events_, ElementsAre("connected"));
}

TEST_F(HappyEyeballsSocketTest, IsTheSocketOfTheWinner) {
  Connect({{"[fd00::1]:1"}, {"10.0.0.1:1"}});
  At("[fd00::1]:1").OnDisconnected(absl::UnavailableError("refused"));
  At("10.0.0.1:1").OnConnected();
  socket_->Write("request");
  EXPECT_EQ(socket_->unsent_bytes(), 7U);
  socket_->SetReading(false);
  EXPECT_FALSE(network_.sockets.at("10.0.0.1:1")->reading);
  At("10.0.0.1:1").OnBytes("response");
  At("10.0.0.1:1").OnDrained();
  At("10.0.0.1:1").OnDisconnected(absl::OkStatus());
  EXPECT_THAT(events_, ElementsAre("connected", "bytes response", "drained", "OK"));
}

TEST_F(HappyEyeballsSocketTest, TlsBeginsAtTheWinner) {
  Connect({{"[fd00::1]:1"}, {"10.0.0.1:1"}});
  At("[fd00::1]:1").OnTcpConnected();
  Wait(250ms);
  EXPECT_THAT(network_.addresses(), ElementsAre("[fd00::1]:1"));
  socket_->StartTls();
  EXPECT_TRUE(network_.sockets.at("[fd00::1]:1")->tls);
  At("[fd00::1]:1").OnConnected();
  EXPECT_THAT(events_, ElementsAre("tcp", "connected"));
}

TEST_F(HappyEyeballsSocketTest, AFailureNamesTheReasonsOfTheFirstAddresses) {
  std::vector<WorkerAddress> addresses;
  for (int i = 0; i < 6; ++i) addresses.push_back({absl::StrCat("10.0.0.", i, ":1")});
  Connect(addresses);
  for (int i = 0; i < 6; ++i) {
    EXPECT_THAT(events_, ElementsAre());
    const auto code = i == 5 ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kUnavailable;
    At(addresses[i].text).OnDisconnected(absl::Status(code, absl::StrCat("reason ", i)));
  }
  EXPECT_THAT(events_, ElementsAre("DEADLINE_EXCEEDED: reason 0; reason 1; reason 2; reason 3; and 2 more addresses "
                                   "failed"));
}

TEST_F(HappyEyeballsSocketTest, LeavesNothingBehindWhenItIsDestroyed) {
  Connect({{"[fd00::1]:1"}, {"10.0.0.1:1"}});
  socket_.reset();
  EXPECT_THAT(network_.addresses(), ElementsAre());
  EXPECT_EQ(timers_.next(), TimePoint::max());
}

}  // namespace
}  // namespace sluice::testing
