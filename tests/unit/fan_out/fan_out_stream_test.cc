#include <atomic>

#include "sluice/fan_out.h"

#include "tests/unit/fan_out/fan_out_fixture.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::ExpectConsistent;
using testing::Fails;
using testing::HasCode;
using ::testing::IsEmpty;
using testing::NameOf;
using testing::Says;
using testing::Script;
using testing::Seen;
using testing::Text;
using testing::Way;
using testing::Wire;

class FanOutStreamTest : public testing::FanOutTest {
 protected:
  static std::vector<std::string> Values(const std::vector<Text>& messages) {
    std::vector<std::string> values;
    for (const Text& message : messages) values.push_back(message.value());
    return values;
  }
};

INSTANTIATE_TEST_SUITE_P(By, FanOutStreamTest,
                         ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants,
                                           Way(SchedulePolicy::kGrants, true), Way(SchedulePolicy::kGrants, false, 3)),
                         NameOf);

TEST_P(FanOutStreamTest, MergesTheMessagesOfAWorkerInTheirOrder) {
  Start(2);
  server(0).SetPlay(Says({"a", "b", "c"}));
  server(1).SetPlay(Says({"d"}));
  const auto [result, responses] = fan_out_->Collect(kStream, Ask(2));
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(Values(responses[0]), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Values(responses[1]), ElementsAre("d"));
  EXPECT_EQ(result.answered, 2u);
  EXPECT_EQ(result.response_bytes, static_cast<int64_t>(4 * Wire("a").size()));
  EXPECT_TRUE(AwaitIdle());
}

TEST_P(FanOutStreamTest, AnEmptyStreamIsAResponse) {
  Start(1);
  server(0).SetPlay(Says({}));
  const auto [result, responses] = fan_out_->Collect(kStream, Ask(1));
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.answered, 1u);
  EXPECT_THAT(responses[0], IsEmpty());
}

TEST_P(FanOutStreamTest, LongStreamsAndLargeMessages) {
  Start(2);
  server(0).SetPlay(Says(std::vector<std::string>(1000, "small")));
  server(1).SetPlay(Says(std::vector<std::string>(4, std::string(1 << 20, 'x'))));
  const auto [result, responses] = fan_out_->Collect(kStream, Ask(2));
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(responses[0].size(), 1000u);
  EXPECT_EQ(responses[1].size(), 4u);
}

TEST_P(FanOutStreamTest, AFailureBeforeTheFirstMessageIsReplaced) {
  Start(2);
  server(0).SetPlay(Fails(absl::StatusCode::kUnavailable));
  const auto [result, responses] = fan_out_->Collect(kStream, Ask(1, {1}));
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.retries, 1u);
  EXPECT_THAT(Values(responses[0]), ElementsAre("1"));
}

TEST_P(FanOutStreamTest, AFailureAfterTheFirstMessageIsNot) {
  Start(2);
  server(0).SetPlay(Fails(absl::StatusCode::kUnavailable, {"a", "b"}));
  const auto [result, responses] = fan_out_->Collect(kStream, Ask(1, {1}));
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(result.retries, 0u);
  EXPECT_EQ(server(1).counts().requests, 0);
  EXPECT_THAT(Values(responses[0]), ElementsAre("a", "b"));
}

// The stream fails even if its worker has ended it OK before the reset arrives.
TEST_P(FanOutStreamTest, ARefusalInTheMiddleEndsTheStream) {
  Start(1);
  for (const size_t refused : {1, 2, 3}) {
    server(0).SetPlay(Says({"1", "2", "3"}));
    std::vector<std::string> merged;
    const auto result = fan_out_->Call(kStream, Ask(1), [&](size_t, const Text& text) {
      merged.push_back(text.value());
      return merged.size() == refused ? absl::DataLossError("enough of it") : absl::OkStatus();
    });
    EXPECT_THAT(result.status, HasCode(absl::StatusCode::kDataLoss)) << refused;
    EXPECT_EQ(merged.size(), refused);
    EXPECT_EQ(result.answered, 0u);
    ExpectConsistent(result);
  }
}

TEST_P(FanOutStreamTest, ARefusedFirstMessageIsAskedOfAReplica) {
  Start(2);
  server(0).SetPlay(Says({"bad", "x"}));
  const auto collected_by = [](const Text& text) {
    return text.value() == "bad" ? absl::DataLossError("bad") : absl::OkStatus();
  };
  const auto result = fan_out_->Call(kStream, Ask(1, {1}), [&](size_t, const Text& text) {
    EXPECT_NE(text.value(), "x") << "after the refusal";
    return collected_by(text);
  });
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.retries, 1u);
}

TEST_P(FanOutStreamTest, TheFirstMessageWinsTheHedge) {
  Start(2);
  const auto holds_at = [](size_t message) {
    return [message](const Seen&) { return Script{.messages = {Wire("a"), Wire("b")}, .hold_before = message}; };
  };
  server(0).SetPlay(holds_at(0));
  server(1).SetPlay(holds_at(1));
  std::atomic<int> merged = 0;
  const auto pending = CallAsync(
      Ask(1, {1}), {.hedge_after = absl::Milliseconds(20)},
      [&](size_t, const Text&) {
        ++merged;
        return absl::OkStatus();
      },
      kStream);
  ASSERT_TRUE(testing::Eventually([&] { return merged == 1; }));
  EXPECT_TRUE(server(0).Await([](const auto& counts) { return counts.cancelled == 1; })) << "it has lost";
  EXPECT_FALSE(pending->ended());
  server(1).Release();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_EQ(merged, 2);
  EXPECT_EQ(pending->result().hedges_won, 1u);
}

TEST_P(FanOutStreamTest, AHalfReceivedStreamIsCancelledWhenTheRestIsEnough) {
  Start(2);
  server(0).SetPlay([](const Seen&) { return Script{.messages = {Wire("a"), Wire("b")}, .hold_before = 1}; });
  server(1).SetPlay(testing::Holds("1"));
  std::atomic<int> merged = 0;
  const auto pending = CallAsync(
      Ask(2), {.success_quorum = 1},
      [&](size_t, const Text&) {
        ++merged;
        return absl::OkStatus();
      },
      kStream);
  ASSERT_TRUE(testing::Eventually([&] { return merged == 1; }));
  server(1).Release();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_EQ(pending->result().answered, 1u);
  EXPECT_EQ(pending->result().cancelled, 1u);
  EXPECT_EQ(merged, 2);
}

}  // namespace
}  // namespace sluice
