#include "sluice/fan_out.h"

#include "tests/unit/fan_out/fan_out_fixture.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::Fails;
using testing::Holds;
using ::testing::IsEmpty;
using testing::NameOf;
using ::testing::Pair;
using testing::Script;
using testing::Seen;
using testing::Text;
using testing::Wire;

// Metadata of requests, responses and failures.
class FanOutMetadataTest : public testing::FanOutTest {
 protected:
  static FanOut::Map<Text> AskWithShard(size_t asked, std::vector<size_t> replicas = {}) {
    return [=](size_t worker) -> std::optional<sluice::Ask<Text>> {
      if (worker >= asked) return std::nullopt;
      return sluice::Ask<Text>(Text(), std::nullopt, replicas,
                               {{"shard", std::to_string(worker)}, {"key-bin", std::string("\0\xff", 2)}});
    };
  }
  static std::vector<std::string> ValuesOf(const Seen& seen, const std::string& key) {
    std::vector<std::string> values;
    for (auto [next, end] = seen.metadata.equal_range(key); next != end; ++next) values.push_back(next->second);
    return values;
  }
  static testing::ScriptedServer::Play SaysWithMetadata(const std::string& value) {
    return [value](const Seen&) {
      return Script{.messages = {Wire(value)},
                    .headers = {{"node", value}, {"cache-bin", std::string("\0\x01", 2)}},
                    .trailers = {{"cost", "7"}}};
    };
  }
};

INSTANTIATE_TEST_SUITE_P(By, FanOutMetadataTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         NameOf);

TEST_P(FanOutMetadataTest, EachAskHasItsOwnBehindThatOfAll) {
  Start(2);
  const auto result = fan_out_->Call(kUnary, AskWithShard(2), Ignore(), {.metadata = {{"shard", "any"}, {"a", "b"}}});
  ASSERT_TRUE(result.status.ok()) << result.status;
  for (size_t i = 0; i < 2; ++i) {
    const Seen seen = server(i).seen().at(0);
    EXPECT_THAT(ValuesOf(seen, "shard"), ElementsAre("any", std::to_string(i)));
    EXPECT_THAT(ValuesOf(seen, "a"), ElementsAre("b"));
    EXPECT_THAT(ValuesOf(seen, "key-bin"), ElementsAre(std::string("\0\xff", 2)));
  }
}

TEST_P(FanOutMetadataTest, RetriesAndHedgesBringThatOfTheirAsk) {
  Start(4);
  server(0).SetPlay(Fails(absl::StatusCode::kUnavailable));
  server(1).SetPlay(Holds("late"));
  const auto map = [&](size_t worker) -> std::optional<sluice::Ask<Text>> {
    if (worker > 1) return std::nullopt;
    return AskWithShard(2, {worker + 2})(worker);
  };
  const auto result = fan_out_->Call(kUnary, map, Ignore(), {.hedge_after = absl::Milliseconds(20)});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.retries, 1u);
  EXPECT_EQ(result.hedges, 1u);
  EXPECT_THAT(ValuesOf(server(2).seen().at(0), "shard"), ElementsAre("0"));
  EXPECT_THAT(ValuesOf(server(3).seen().at(0), "shard"), ElementsAre("1"));
}

TEST_P(FanOutMetadataTest, ThatOfResponsesIsKeptWhereItIsAskedFor) {
  Start(2);
  server(0).SetPlay(Fails(absl::StatusCode::kUnavailable));
  server(1).SetPlay(SaysWithMetadata("one"));
  const auto result = fan_out_->Call(kUnary, Ask(1, {1}), Ignore(), {.keep_response_metadata = true});
  ASSERT_TRUE(result.status.ok()) << result.status;
  ASSERT_EQ(result.responses.size(), 1u) << "not of those that failed";
  EXPECT_EQ(result.responses[0].primary, 0u);
  EXPECT_EQ(result.responses[0].worker, 1u) << "the replica has responded";
  EXPECT_THAT(result.responses[0].initial, Contains(Pair("node", "one")));
  EXPECT_THAT(result.responses[0].initial, Contains(Pair("cache-bin", std::string("\0\x01", 2))));
  EXPECT_THAT(result.responses[0].trailing, Contains(Pair("cost", "7")));
}

TEST_P(FanOutMetadataTest, ThatOfResponsesIsNotKeptUnasked) {
  Start(1);
  server(0).SetPlay(SaysWithMetadata("one"));
  const auto result = fan_out_->Call(kUnary, Ask(1), Ignore());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(result.responses, IsEmpty());
}

TEST_P(FanOutMetadataTest, AFailureHasTheDetailsOfItsStatus) {
  Start(2);
  const std::string details("\x08\x05\x12\x03why\0", 8);
  server(1).SetPlay([&](const Seen&) {
    return Script{
        .messages = {}, .status = absl::NotFoundError("no such shard \xe2\x82\xac"), .status_details = details};
  });
  const auto result = fan_out_->Call(kUnary, Ask(2), Ignore(), {.fail_limit = 1});
  EXPECT_TRUE(result.status.ok()) << result.status;
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].status, absl::NotFoundError("no such shard \xe2\x82\xac"));
  EXPECT_EQ(result.failures[0].status_details, details);
}

TEST_P(FanOutMetadataTest, AFailureWithoutDetailsHasNone) {
  Start(1);
  server(0).SetPlay(Fails(absl::StatusCode::kNotFound));
  const auto result = fan_out_->Call(kUnary, Ask(1), Ignore());
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].status_details, "");
}

}  // namespace
}  // namespace sluice
