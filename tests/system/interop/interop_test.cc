#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <google/protobuf/empty.pb.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/wrappers.pb.h>

#include "sluice/fan_out.h"
#include "sluice/link.h"

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "tests/eventually.h"
#include "tests/system/apps/run_program.h"
#include "tests/system/interop/counting_relay.h"
#include "tests/unit/link/held_budget.h"
#include "tests/unit/storage/stripe/striped_folder.h"

// Tests grants with servers without Sluice, in the four APIs of interop.proto. The test delays grants by reserving most
// of a small budget until it releases it.
namespace sluice {
namespace {

using google::protobuf::BytesValue;
using google::protobuf::Empty;
using google::protobuf::Struct;
using testing::BackgroundProgram;
using testing::CountingRelay;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::HeldBudget;
using testing::kPatience;
using Clock = std::chrono::steady_clock;

constexpr int64_t kBudgetBytes = 40'000;
constexpr int64_t kBlockerBytes = 30'000;
constexpr int64_t kAnswerBytes = 256 << 10;  // more than the budget, so it arrives in parts
// The settings of a connection, the headers and message prefixes of two responses, and the trailers of one.
constexpr int64_t kHeadersAtMost = 700;
constexpr auto kAtOnce = std::chrono::milliseconds(10);
constexpr int kTries = 5;  // a busy machine may lose some milliseconds in one try

const Method<Struct, BytesValue> kGet{"/sluice.interop.v1.Interop/Get"};
const Method<Struct, BytesValue> kList{"/sluice.interop.v1.Interop/List", /*server_streaming=*/true};
const Method<Empty, Empty> kRelease{"/sluice.interop.v1.Interop/Release"};

Struct Order(const std::map<std::string, double>& numbers, const std::string& text = "") {
  Struct order;
  for (const auto& [name, number] : numbers) (*order.mutable_fields())[name].set_number_value(number);
  (*order.mutable_fields())["text"].set_string_value(text);
  return order;
}

// A fan-out in progress, and its outcome.
struct Pending {
  bool Await() { return ended.WaitForNotificationWithTimeout(kPatience); }

  std::shared_ptr<FanOutCall> call;
  std::vector<BytesValue> answers;
  FanOutResult result;
  absl::Notification ended;
};

// Returns the command that starts a server. Returns nullopt if the machine cannot run it; `why` then names the missing
// part.
std::optional<std::vector<std::string>> ServerCommand(const std::string& kind, std::string& why) {
  if (kind == "cpp_sync") return {{INTEROP_CPP_SERVER, "sync"}};
  if (kind == "cpp_callback") return {{INTEROP_CPP_SERVER, "callback"}};
  if (kind == "python") {
    // CMake may have found a Python other than Debian's, and only Debian's Python has the grpcio package.
    for (const char* python : {INTEROP_PYTHON, "/usr/bin/python3"}) {
      if (testing::RunProgram({python, "-c", "import grpc, google.protobuf"}).exit_code == 0) {
        return {{python, INTEROP_FOLDER "/python_server.py"}};
      }
    }
    why = "Python has no grpcio; on Debian: apt-get install python3-grpcio";
    return std::nullopt;
  }
  // Build a copy for this process only: the tests run at the same time, and go does not replace a program atomically.
  // The first process compiles, and the others wait for its results in Go's cache. Go itself locks go.mod.
  static const testing::TemporaryFolder folder;
  const std::string program = folder.path() / "server";
  static const testing::ProgramResult built =
      testing::RunProgram({"/usr/bin/flock", "--close", INTEROP_FOLDER "/go/main.go", "go", "build", "-C",
                           INTEROP_FOLDER "/go", "-o", program, "."},
                          "", std::chrono::minutes(5));
  if (built.exit_code != 0) {
    why = "go cannot build the server, which needs Go 1.24 and a network once (tests/install-languages): " + built.err;
    return std::nullopt;
  }
  return {{program}};
}

class InteropTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string why;
    const auto command = ServerCommand(GetParam(), why);
    if (!command.has_value()) GTEST_SKIP() << why;
    program_ = std::make_unique<BackgroundProgram>(*command);
    ASSERT_TRUE(program_->WaitForStderr("port ")) << program_->err();
    const int port = std::atoi(program_->err().substr(program_->err().find("port ") + 5).c_str());
    relay_ = std::make_unique<CountingRelay>(port);
    link_ = MakeLink(
        {.schedule = {
             .policy = SchedulePolicy::kGrants, .budget_bytes = kBudgetBytes, .stall_timeout = absl::Minutes(10)}});
    fan_out_ = MakeFanOut(link_, relay_->address());
    control_ = MakeFanOut(MakeLink({.schedule = {.policy = SchedulePolicy::kUnscheduled}}),
                          "127.0.0.1:" + std::to_string(port));
    EXPECT_TRUE(fan_out_->Connect().empty());
  }

  static std::shared_ptr<Link> MakeLink(const Link::Options& options) {
    auto link = Link::Create(options);
    EXPECT_TRUE(link.ok()) << link.status();
    return *std::move(link);
  }

  static std::unique_ptr<FanOut> MakeFanOut(std::shared_ptr<Link> link, const std::string& address) {
    auto fan_out = FanOut::Create(std::move(link), {.workers = {address}});
    EXPECT_TRUE(fan_out.ok()) << fan_out.status();
    return *std::move(fan_out);
  }

  static std::unique_ptr<Pending> Ask(FanOut& fan_out, const Method<Struct, BytesValue>& method, const Struct& order,
                                      int64_t expected_bytes, const FanOutOptions& options = {}) {
    auto pending = std::make_unique<Pending>();
    pending->call = fan_out.CallAsync(
        method, [&](size_t) { return sluice::Ask<Struct>(order, expected_bytes); },
        [pending = pending.get()](size_t, BytesValue answer) {
          pending->answers.push_back(std::move(answer));
          return absl::OkStatus();
        },
        options,
        [pending = pending.get()](FanOutResult result) {
          pending->result = std::move(result);
          pending->ended.Notify();
        });
    return pending;
  }
  std::unique_ptr<Pending> Get(const Struct& order, int64_t expected_bytes, const FanOutOptions& options = {}) {
    return Ask(*fan_out_, kGet, order, expected_bytes, options);
  }
  // The sync C++ API sends the headers of a unary response only with the response, but it can send those of a stream
  // early.
  std::unique_ptr<Pending> GetWithEarlyHeaders(std::map<std::string, double> numbers, int64_t expected_bytes) {
    numbers["early"] = 1;
    const bool unary = std::string(GetParam()) != "cpp_sync";
    return Ask(*fan_out_, unary ? kGet : kList, Order(numbers), expected_bytes);
  }

  // Until Unblock, no part of a large response is granted.
  void Block() { held_.emplace(*link_, kBlockerBytes); }
  void Unblock() { held_->Release(); }

  void ReleaseServer() {
    const FanOutResult released = control_->Call(
        kRelease, [](size_t) { return Empty(); }, [](size_t, const Empty&) { return absl::OkStatus(); });
    EXPECT_TRUE(released.status.ok()) << released.status;
  }

  uint64_t ReadyAnswers() const {
    for (const prometheus::MetricFamily& family : link_->registry().Collect()) {
      if (family.name == "sluice_ready_seconds") return family.metric.front().histogram.sample_count;
    }
    return 0;
  }
  bool AwaitReady(uint64_t answers) {
    return Eventually([=, this] { return ReadyAnswers() >= answers; });
  }

  // An empty response needs no grant, and it arrives after all bytes that earlier responses have sent.
  void ExpectHeadersOnly() {
    ASSERT_TRUE(Get(Order({}), 0)->Await());
    EXPECT_LT(relay_->server_bytes(), kHeadersAtMost);
  }

  std::unique_ptr<BackgroundProgram> program_;
  std::unique_ptr<CountingRelay> relay_;
  std::shared_ptr<Link> link_;
  std::unique_ptr<FanOut> fan_out_;
  std::unique_ptr<FanOut> control_;
  std::optional<HeldBudget> held_;
};

TEST_P(InteropTest, NothingButHeadersComesBeforeTheGrantAndEverythingAfterIt) {
  Block();
  const auto pending = Get(Order({{"bytes", kAnswerBytes}}), kAnswerBytes);
  ASSERT_TRUE(AwaitReady(1));
  ExpectHeadersOnly();
  EXPECT_FALSE(pending->ended.HasBeenNotified());
  Unblock();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result.status.ok()) << pending->result.status;
  ASSERT_EQ(pending->answers.size(), 1);
  EXPECT_EQ(pending->answers[0].value(), std::string(kAnswerBytes, 'x'));
  EXPECT_GT(relay_->server_bytes(), kAnswerBytes);
}

TEST_P(InteropTest, NothingOfAStreamComesBeforeTheGrantAndEveryMessageAfterIt) {
  constexpr int kMessages = 8;
  Block();
  const auto pending =
      Ask(*fan_out_, kList, Order({{"bytes", kAnswerBytes / kMessages}, {"messages", kMessages}}), kAnswerBytes);
  ASSERT_TRUE(AwaitReady(1));
  ExpectHeadersOnly();
  EXPECT_TRUE(pending->answers.empty());
  Unblock();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result.status.ok()) << pending->result.status;
  ASSERT_EQ(pending->answers.size(), kMessages);
  EXPECT_EQ(pending->answers.back().value(), std::string(kAnswerBytes / kMessages, 'x'));
}

TEST_P(InteropTest, TakesAnswersLargerThanGrpcTakesByDefault) {
  constexpr int64_t kBytes = 4 << 20;  // with framing more than 4 MiB
  const auto pending = Get(Order({{"bytes", kBytes}}), kBytes);
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result.status.ok()) << pending->result.status;
  ASSERT_EQ(pending->answers.size(), 1);
  EXPECT_EQ(pending->answers[0].value().size(), kBytes);
}

TEST_P(InteropTest, TakesEmptyAnswersAndStreams) {
  for (const auto& method : {kGet, kList}) {
    const auto pending = Ask(*fan_out_, method, Order({}), 0);
    ASSERT_TRUE(pending->Await());
    EXPECT_TRUE(pending->result.status.ok()) << pending->result.status;
    ASSERT_EQ(pending->answers.size(), 1);
    EXPECT_TRUE(pending->answers[0].value().empty());
  }
}

TEST_P(InteropTest, ErrorsKeepTheirCodeAndTheirText) {
  for (const std::string text : {"", "no such shard"}) {
    const auto pending = Get(Order({{"code", static_cast<double>(absl::StatusCode::kNotFound)}}, text), kAnswerBytes);
    ASSERT_TRUE(pending->Await());
    EXPECT_EQ(pending->result.status.code(), absl::StatusCode::kNotFound) << pending->result.status;
    EXPECT_THAT(std::string(pending->result.status.message()), HasSubstr(text));
    EXPECT_TRUE(pending->answers.empty());
  }
}

TEST_P(InteropTest, AnErrorNeedsNoGrant) {
  Block();
  const auto pending =
      Get(Order({{"code", static_cast<double>(absl::StatusCode::kNotFound)}}, "no such shard"), kAnswerBytes);
  ASSERT_TRUE(pending->Await());
  EXPECT_EQ(pending->result.status.code(), absl::StatusCode::kNotFound) << pending->result.status;
}

TEST_P(InteropTest, AnErrorAtTheEndOfAStreamComesAfterItsMessages) {
  const auto pending = Ask(
      *fan_out_, kList,
      Order({{"bytes", 1000}, {"messages", 3}, {"code", static_cast<double>(absl::StatusCode::kFailedPrecondition)}},
            "index is stale"),
      3000);
  ASSERT_TRUE(pending->Await());
  EXPECT_EQ(pending->result.status.code(), absl::StatusCode::kFailedPrecondition) << pending->result.status;
  EXPECT_THAT(std::string(pending->result.status.message()), HasSubstr("index is stale"));
  EXPECT_EQ(pending->answers.size(), 3);
}

TEST_P(InteropTest, HeadersThatComeBeforeTheAnswerIsComputedAreNoAnswer) {
  const auto pending = GetWithEarlyHeaders({{"bytes", kAnswerBytes}, {"hold", 1}}, kAnswerBytes);
  ASSERT_TRUE(Eventually([this] { return link_->State().ungranted_calls == 1; }));
  ASSERT_TRUE(Get(Order({{"bytes", 1}}), 1)->Await());
  EXPECT_EQ(ReadyAnswers(), 1) << "the other one";
  EXPECT_LE(link_->State().in_flight_bytes, kBudgetBytes / 3) << "nothing but early bytes is granted to it";
  ReleaseServer();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result.status.ok()) << pending->result.status;
  ASSERT_EQ(pending->answers.size(), 1);
  EXPECT_EQ(pending->answers[0].value().size(), kAnswerBytes);
}

TEST_P(InteropTest, NothingButHeadersComesBeforeTheGrantWhereTheyCameEarly) {
  Block();
  const auto pending = GetWithEarlyHeaders({{"bytes", kAnswerBytes}, {"hold", 1}}, kAnswerBytes);
  ASSERT_TRUE(Eventually([this] { return link_->State().ungranted_calls == 1; }));
  ReleaseServer();
  ASSERT_TRUE(AwaitReady(1));
  ExpectHeadersOnly();
  Unblock();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result.status.ok()) << pending->result.status;
}

// Returns the shortest time from a cancel to the end of its call.
Clock::duration ShortestCancel(const std::function<std::unique_ptr<Pending>()>& start) {
  Clock::duration shortest = Clock::duration::max();
  for (int i = 0; i < kTries && shortest >= kAtOnce; ++i) {
    const auto pending = start();
    const Clock::time_point cancelled = Clock::now();
    pending->call->Cancel();
    EXPECT_TRUE(pending->Await());
    shortest = std::min(shortest, Clock::now() - cancelled);
    EXPECT_EQ(pending->result.status.code(), absl::StatusCode::kCancelled) << pending->result.status;
  }
  return shortest;
}

TEST_P(InteropTest, CancelsAtOnceAServerThatDoesNotCare) {
  // The server has not responded yet.
  EXPECT_LT(ShortestCancel([this] {
              auto pending = Get(Order({{"hold", 1}}), kAnswerBytes);
              EXPECT_TRUE(Eventually([this] { return link_->State().ungranted_calls == 1; }));
              return pending;
            }),
            kAtOnce);
  // The server may have sent its headers.
  EXPECT_LT(ShortestCancel([this] {
              auto pending = GetWithEarlyHeaders({{"hold", 1}}, kAnswerBytes);
              EXPECT_TRUE(Eventually([this] { return link_->State().ungranted_calls == 1; }));
              return pending;
            }),
            kAtOnce);
  ReleaseServer();
}

TEST_P(InteropTest, KeepsTheDeadlineOfAServerThatDoesNotCare) {
  constexpr auto kTimeout = std::chrono::milliseconds(100);
  Clock::duration latest = Clock::duration::max();
  for (int i = 0; i < kTries && latest >= kTimeout + kAtOnce; ++i) {
    const Clock::time_point started = Clock::now();
    const auto pending = Get(Order({{"hold", 1}}), kAnswerBytes, {.timeout = absl::FromChrono(kTimeout)});
    ASSERT_TRUE(pending->Await());
    const Clock::duration elapsed = Clock::now() - started;
    EXPECT_EQ(pending->result.status.code(), absl::StatusCode::kDeadlineExceeded) << pending->result.status;
    // The servers also end the call, and the C++ servers count its time in whole milliseconds.
    EXPECT_GE(elapsed, kTimeout - std::chrono::milliseconds(2));
    latest = std::min(latest, elapsed);
  }
  EXPECT_LT(latest, kTimeout + kAtOnce);
  ReleaseServer();
}

INSTANTIATE_TEST_SUITE_P(Servers, InteropTest, ::testing::Values("cpp_sync", "cpp_callback", "python", "go"),
                         [](const ::testing::TestParamInfo<const char*>& info) { return std::string(info.param); });

}  // namespace
}  // namespace sluice
