#include "lib/rpc/worker_channels.h"

#include <chrono>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/blocks/test_cluster.h"
#include "tests/link/silent_listener.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::HasCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SilentListener;
using testing::TestWorker;

TEST(WorkerChannelsTest, AcceptsAddressesOfEveryForm) {
  for (const char* address : {"10.0.0.1:1", "worker-7.example.org:65535", "localhost:50051", "[::1]:80", "unix:/run/w",
                              "unix-abstract:w", "dns:///w:1", "ipv4:127.0.0.1:1", "ipv6:[::1]:1"}) {
    EXPECT_TRUE(WorkerChannels::Validate({address}).ok()) << address;
  }
}

TEST(WorkerChannelsTest, RefusesWhatIsNotAnAddressAndQuotesIt) {
  for (const char* address :
       {"", ":", ":80", "host", "host:", "host:0", "host:65536", "host:-1", "host:http", "host:80x",
        "host:99999999999999", "host: 80", "host:+80", " host:80", "host:80 ", "a b:80", "unix:", "dns:"}) {
    const absl::Status status = WorkerChannels::Validate({"good:1", address});
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument)) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("\"", address, "\"")));
  }
}

TEST(WorkerChannelsTest, RefusesNoWorkerAndMoreThanAStripeCanHave) {
  EXPECT_THAT(WorkerChannels::Validate({}), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(WorkerChannels::Validate(std::vector<std::string>(65536, "w:1")).ok());
  const absl::Status status = WorkerChannels::Validate(std::vector<std::string>(65537, "w:1"));
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()), HasSubstr("65537"));
}

class ConnectTest : public ::testing::Test {
 protected:
  ConnectTest() {
    EXPECT_TRUE(testing::StripeBytes("x", {.root = folder_.path(), .file = "f", .workers = 1, .sru_bytes = 1}).ok());
  }

  testing::TemporaryFolder folder_;
  WorkerTable table_;
};

TEST_F(ConnectTest, ConnectsToAllWorkersThatAreThere) {
  TestWorker a(folder_.path());
  TestWorker b(folder_.path());
  EXPECT_THAT(WorkerChannels({a.address(), b.address()}, table_, {.may_hold = true}).Connect(testing::kPatience),
              IsEmpty());
}

TEST_F(ConnectTest, NamesThoseWhereNobodyListensAndDoesNotWaitForThem) {
  TestWorker there(folder_.path());
  SilentListener gone;
  gone.Close();
  const auto started = std::chrono::steady_clock::now();
  const WorkerChannels channels({gone.address(), there.address(), gone.address()}, table_, {.may_hold = false});
  EXPECT_THAT(channels.Connect(testing::kPatience), ElementsAre(0, 2));
  EXPECT_LT(std::chrono::steady_clock::now() - started, absl::ToChronoMilliseconds(testing::kPatience / 2));
}

TEST_F(ConnectTest, GivesUpOnAListenerThatNeverAnswersTheHandshakeWhenTheTimeIsOver) {
  TestWorker there(folder_.path());
  SilentListener silent;
  const auto started = std::chrono::steady_clock::now();
  const WorkerChannels channels({silent.address(), there.address()}, table_, {.may_hold = false});
  EXPECT_THAT(channels.Connect(absl::Milliseconds(500)), ElementsAre(0));
  const auto elapsed = std::chrono::steady_clock::now() - started;
  EXPECT_GE(elapsed, std::chrono::milliseconds(500));
  EXPECT_LT(elapsed, absl::ToChronoMilliseconds(testing::kPatience / 2));
}

TEST_F(ConnectTest, DoesNotRushAtTheRestWhenTheTimeIsOver) {
  SilentListener silent;
  SilentListener last;
  std::vector<std::string> addresses(16, silent.address());
  addresses.push_back(last.address());
  const WorkerChannels channels(addresses, table_, {.may_hold = false});
  EXPECT_EQ(channels.Connect(absl::Milliseconds(300)).size(), addresses.size());
  EXPECT_TRUE(silent.HasConnection());
  EXPECT_FALSE(last.HasConnection());
}

TEST_F(ConnectTest, GivesEachWorkerARowAndTheSameOneToTheSameAddress) {
  const WorkerChannels channels({"10.0.0.1:1", "10.0.0.2:1", "10.0.0.1:1"}, table_, {.may_hold = false});
  const WorkerChannels others({"10.0.0.2:1", "10.0.0.3:1"}, table_, {.may_hold = true});
  EXPECT_NE(channels.row(0), channels.row(1));
  EXPECT_EQ(channels.row(2), channels.row(0));
  EXPECT_EQ(others.row(0), channels.row(1));
  EXPECT_EQ(table_.Summaries().size(), 3u);
}

TEST_F(ConnectTest, TellsNamesFromAddresses) {
  const WorkerChannels channels({"w-0.ws:7000", "localhost:7000", "dns:///w:1", "127.0.0.1:1", "[::1]:1", "unix:/run/w",
                                 "unix-abstract:w", "ipv4:127.0.0.1:1", "ipv6:[::1]:1"},
                                table_, {.may_hold = false});
  for (size_t worker = 0; worker < channels.size(); ++worker) {
    EXPECT_EQ(channels.by_name(worker), worker < 3) << channels.address(worker);
  }
}

TEST_F(ConnectTest, SharesTheConnectionsOfThoseBeforeWhereTheyAreTheSame) {
  const WorkerChannels before({"10.0.0.1:1", "10.0.0.2:1"}, table_, {.may_hold = true});
  const WorkerChannels after({"10.0.0.3:1", "10.0.0.2:1"}, table_, {.may_hold = true}, &before);
  EXPECT_EQ(after.first(1), before.first(1));
  EXPECT_EQ(after.second(1), before.second(1));
  EXPECT_NE(after.first(0), before.first(0));
  const WorkerChannels others({"10.0.0.2:1"}, table_, {.may_hold = true, .max_response_bytes = 1}, &before);
  EXPECT_NE(others.first(0), before.first(1));
}

TEST_F(ConnectTest, ACallUsesTheChannelOfTheMoment) {
  TestWorker worker(folder_.path());
  const WorkerChannels channels({worker.address()}, table_, {.may_hold = true});
  EXPECT_NE(channels.stub(0, true), channels.stub(0, false));
  const auto held = channels.stub(0, true);
  const auto other = channels.MakeChannel(0, /*first=*/true);
  channels.first(0)->Replace(other);
  EXPECT_NE(channels.stub(0, true), held);
  EXPECT_EQ(channels.first(0)->channel(), other);
  EXPECT_THAT(channels.Connect(testing::kPatience), IsEmpty());
  EXPECT_EQ(other->GetState(false), GRPC_CHANNEL_READY);
}

TEST_F(ConnectTest, TakesATimeWithoutEnd) {
  TestWorker there(folder_.path());
  EXPECT_THAT(WorkerChannels({there.address()}, table_, {.may_hold = false}).Connect(absl::InfiniteDuration()),
              IsEmpty());
}

}  // namespace
}  // namespace sluice
