#include "lib/link/scheduled_connection.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/link/link_loop.h"
#include "lib/net/asio_executor.h"
#include "tests/eventually.h"
#include "tests/unit/link/link_stream_fixture.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/names_executor.h"

namespace sluice::testing {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Connections of one link, whose budget has room for two windows. The test holds the clock.
class ScheduledConnectionTest : public ::testing::Test {
 protected:
  // A connection, and a log of its events. Each server records its requests, and responds with the bytes of `answers_`.
  class Client final : public ScheduledConnection::User {
   public:
    explicit Client(ScheduledConnectionTest& test, size_t traffic_class = 0) : test_(test) {
      test_.executor_.Await(
          [&] { connection_ = std::make_unique<ScheduledConnection>(*test_.loop_, traffic_class, *this); });
    }
    ~Client() override {
      test_.executor_.Await([&] {
        connection_->Stop();
        connection_.reset();
      });
    }

    void Connect(const std::string& target) {
      test_.executor_.Await([&] { connection_->Connect(target); });
      log_.Await(1);
    }
    void Write(const std::string& bytes) {
      test_.executor_.Await([&] { connection_->Write(bytes); });
    }
    void EndWrites() {
      test_.executor_.Await([&] { connection_->EndWrites(); });
    }
    // Until Resume it takes no bytes but the first.
    void TakeNoMore() { takes_more_ = false; }
    void Resume() {
      takes_more_ = true;
      test_.executor_.Await([&] { connection_->Resume(); });
    }
    void Stop() {
      test_.executor_.Await([&] { connection_->Stop(); });
    }
    EventLog& log() { return log_; }
    size_t received_bytes() const { return received_bytes_; }

   private:
    void OnOpen() override { log_.Add("open"); }
    bool OnBytes(absl::string_view bytes) override {
      received_bytes_ += bytes.size();
      return takes_more_;
    }
    void OnWritten() override { log_.Add("written"); }
    void OnEnded() override { log_.Add("ended"); }
    void OnOver(const absl::Status& why, int error_number) override {
      log_.Add(absl::StrCat("over: ", absl::StatusCodeToString(why.code()), " ", error_number));
    }

    ScheduledConnectionTest& test_;
    EventLog log_;
    std::atomic<bool> takes_more_ = true;
    std::atomic<size_t> received_bytes_ = 0;
    std::unique_ptr<ScheduledConnection> connection_;
  };

  ScheduledConnectionTest() {
    executor_.Await([&] {
      loop_ = std::make_unique<LinkLoop>(names_, Shallow().schedule, metrics_);
      names_.StopClock();
    });
  }
  ~ScheduledConnectionTest() override {
    clients_.clear();
    executor_.Await([&] { loop_.reset(); });
    answer_.Add("");
  }

  // A client of a new server, which calls it by `name`.
  Client& Add(const std::string& name, size_t traffic_class = 0) {
    servers_.push_back(std::make_unique<TestListener>("127.0.0.1:0", [this, name](int fd) {
      while (!ReceiveAtLeast(fd, 1).empty()) {
        requests_.Add(name);
        SendAll(fd, answer_.Await(1)[0]);
      }
      requests_.Add(name + " ended");
    }));
    Client& client = *clients_.emplace_back(std::make_unique<Client>(*this, traffic_class));
    client.Connect(servers_.back()->address().text);
    return client;
  }
  ScheduleState State() {
    ScheduleState state;
    executor_.Await([&] { state = loop_->schedule().State(); });
    return state;
  }
  void PutForward(std::chrono::nanoseconds time) {
    executor_.Await([&] { names_.PutForward(time); });
  }

  prometheus::Registry registry_;
  LinkMetrics metrics_{registry_};
  AsioExecutor executor_;
  NamesExecutor names_{executor_};
  std::unique_ptr<LinkLoop> loop_;
  EventLog requests_;
  EventLog answer_;  // the first event is the response of each server
  std::vector<std::unique_ptr<TestListener>> servers_;
  std::vector<std::unique_ptr<Client>> clients_;
};

TEST_F(ScheduledConnectionTest, ARequestLeavesOnceTheWindowOfItsResponseFits) {
  for (const char* name : {"a", "b", "c"}) Add(name);
  for (const auto& client : clients_) client->Write("?");
  EXPECT_THAT(requests_.Await(2), UnorderedElementsAre("a", "b"));
  EXPECT_THAT(clients_[0]->log().Await(2), ElementsAre("open", "written"));
  EXPECT_THAT(clients_[2]->log().events(), ElementsAre("open"));
  EXPECT_GT(State().in_flight_bytes, 2 * 2 * 1448);
  EXPECT_LE(State().in_flight_bytes, 10'000);
  PutForward(200ms);  // two servers think for longer than a tunnel waits
  EXPECT_THAT(requests_.Await(3), UnorderedElementsAre("a", "b", "c"));
  EXPECT_THAT(clients_[2]->log().Await(2), ElementsAre("open", "written"));
}

TEST_F(ScheduledConnectionTest, AConnectionThatStopsFreesItsWindow) {
  for (const char* name : {"a", "b", "c"}) Add(name);
  for (const auto& client : clients_) client->Write("?");
  EXPECT_THAT(requests_.Await(2), SizeIs(2));
  clients_[0]->Stop();
  EXPECT_THAT(requests_.events(), SizeIs(2)) << "a window may still be on its way";
  PutForward(1ms);
  EXPECT_THAT(requests_.Await(3), SizeIs(3));
}

TEST_F(ScheduledConnectionTest, AUserThatTakesNothingHoldsNoWindow) {
  Client& client = Add("a");
  client.TakeNoMore();
  client.Write("?");
  EXPECT_THAT(requests_.Await(1), SizeIs(1));
  EXPECT_GT(State().in_flight_bytes, 0);
  answer_.Add(std::string(1 << 20, 'x'));
  EXPECT_TRUE(Eventually([&] { return client.received_bytes() > 0; }));
  PutForward(1ms);
  EXPECT_TRUE(Eventually([&] { return State().in_flight_bytes == 0; }));
  executor_.Await([&] { names_.StartClock(); });
  client.Resume();
  EXPECT_TRUE(Eventually([&] { return client.received_bytes() == 1 << 20; }));
}

TEST_F(ScheduledConnectionTest, TheEndOfTheWritesFollowsTheBytesThatWait) {
  for (const char* name : {"a", "b", "c"}) Add(name);
  for (const auto& client : clients_) client->Write("?");
  clients_[2]->EndWrites();
  EXPECT_THAT(requests_.Await(2), UnorderedElementsAre("a", "b"));
  PutForward(200ms);
  EXPECT_THAT(requests_.Await(3), UnorderedElementsAre("a", "b", "c"));
  answer_.Add("!");
  EXPECT_THAT(requests_.Await(4), ::testing::Contains("c ended"));
}

TEST_F(ScheduledConnectionTest, AConnectionThatCannotBeMadeSaysWhy) {
  const auto log_of = [&](const std::string& target) {
    Client client(*this);
    client.Connect(target);
    return client.log().events();
  };
  EXPECT_THAT(log_of(AddressOfNobody().text), ElementsAre(absl::StrCat("over: UNAVAILABLE ", ECONNREFUSED)));
  EXPECT_THAT(log_of("no such name:80"), ElementsAre("over: NOT_FOUND 0"));
}

// As a backup, an image or a dump: in turns, each of which expects as many bytes as have come.
TEST_F(ScheduledConnectionTest, AResponseMayBeLongerThanTheScheduleCounts) {
  executor_.Await([&] {
    ScheduledTunnel tunnel(*loop_, loop_->metrics().Tunnels("test"), 0,
                           {.on_turn = [] {},
                            .tcp = [] { return std::nullopt; },
                            .set_window = [](int) {},
                            .on_refused = [](const absl::Status& why) { ADD_FAILURE() << why; }});
    tunnel.OnRequest("?");
    const std::string piece(16 << 20, '\0');
    for (int64_t bytes = 0; bytes < kMaxResponseBytes + kMaxResponseBytes / 2 && tunnel.reads();
         bytes += piece.size()) {
      tunnel.OnResponse(piece);
      ASSERT_TRUE(tunnel.reads()) << "after " << bytes + piece.size() << " bytes";
    }
    tunnel.Stop();
  });
}

TEST_F(ScheduledConnectionTest, ARefusedTurnEndsTheConnection) {
  Client& client = Add("a", /*traffic_class=*/1);  // the schedule has no such class
  client.Write("?");
  EXPECT_THAT(client.log().Await(2), ElementsAre("open", "over: INVALID_ARGUMENT 0"));
  EXPECT_EQ(State().in_flight_calls, 0);
  EXPECT_THAT(requests_.events(), SizeIs(0));
}

}  // namespace
}  // namespace sluice::testing
