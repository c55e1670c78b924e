#include "lib/fan_out/fan_out_validate.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/fan_out.h"
#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "tests/unit/fan_out/fan_out_fixture.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::Text;

TEST(FanOutOptionsTest, CreateNamesTheOptionTheValueAndTheBound) {
  const auto link = *Link::Create(LinkProfile());
  const auto refusal = [&](FanOut::Options options) {
    EXPECT_EQ(FanOut::Validate(options), FanOut::Create(link, options).status());
    return std::string(FanOut::Validate(options).message());
  };
  const std::vector<std::string> workers = {"127.0.0.1:1"};
  EXPECT_EQ(refusal({.workers = workers}), "");
  EXPECT_EQ(refusal({}), "workers lists 0 addresses; it must list 1 to 65536");
  EXPECT_THAT(refusal({.workers = {"nonsense"}}), HasSubstr("\"nonsense\" is not host:port"));
  EXPECT_EQ(refusal({.workers = workers, .max_response_bytes = 0}), "max_response_bytes is 0; it must be above 0");
  EXPECT_EQ(refusal({.workers = workers, .connect_timeout = absl::ZeroDuration()}),
            "connect_timeout is 0; it must be above 0");
  EXPECT_EQ(FanOut::Create(link, {.workers = workers, .traffic_class = "scan"}).status().message(),
            "traffic_class: \"scan\" is not a class of the link, which has no classes");
  EXPECT_THAT(FanOut::Create(nullptr, {.workers = workers}).status(), HasCode(absl::StatusCode::kInvalidArgument));
}

// A FanOut with three workers; no request is sent.
class FanOutRefusalTest : public ::testing::Test {
 protected:
  std::string Refusal(const std::string& method, const FanOutOptions& options, const Ask<Text>& ask = Text()) {
    const auto link = *Link::Create(LinkProfile());
    const auto fan_out = *FanOut::Create(link, {.workers = {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}});
    const auto [result, responses] = fan_out->Collect(
        Method<Text, Text>{method}, [&](size_t i) { return i == 1 ? ask : Ask<Text>(Text()); }, options);
    EXPECT_THAT(result.status, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(link->State().submitted_calls, 0);
    return std::string(result.status.message());
  }
  std::string Refusal(const FanOutOptions& options) { return Refusal("/a.B/C", options); }
  std::string Refusal(const Ask<Text>& ask) { return Refusal("/a.B/C", {}, ask); }
};

TEST_F(FanOutRefusalTest, NamesTheMethod) {
  for (const char* method : {"", "a.B/C", "/a.B", "/a.B/", "//C"}) {
    EXPECT_EQ(Refusal(method, {}), absl::StrCat("method: \"", method, "\" is not /package.Service/Method"));
  }
}

TEST_F(FanOutRefusalTest, NamesTheOptionTheValueAndTheBound) {
  EXPECT_EQ(Refusal({.timeout = absl::ZeroDuration()}), "timeout: 0 is not above 0");
  EXPECT_EQ(Refusal({.timeout = -absl::Seconds(1)}), "timeout: -1s is not above 0");
  EXPECT_EQ(Refusal({.fail_limit = -1}), "fail_limit: -1 is below 0");
  EXPECT_EQ(Refusal({.success_quorum = 0}), "success_quorum: 0 is not between 1 and the number of workers asked, 3");
  EXPECT_EQ(Refusal({.traffic_class = "scan"}),
            "traffic_class: \"scan\" is not a class of the link, which has no classes");
  EXPECT_EQ(Refusal({.success_quorum = 4}), "success_quorum: 4 is not between 1 and the number of workers asked, 3");
  EXPECT_EQ(Refusal({.hedge_after = absl::Seconds(1), .hedge_after_quantile = 0.5}),
            "hedge_after and hedge_after_quantile are both set; set one");
  EXPECT_EQ(Refusal({.hedge_after = absl::ZeroDuration()}), "hedge_after: 0 is not above 0");
  EXPECT_EQ(Refusal({.hedge_after_quantile = 0}), "hedge_after_quantile: 0 is not between 0 and 1");
  EXPECT_EQ(Refusal({.hedge_after_quantile = 1}), "hedge_after_quantile: 1 is not between 0 and 1");
  EXPECT_EQ(Refusal({.hedge_after_quantile = std::numeric_limits<double>::quiet_NaN()}),
            "hedge_after_quantile: nan is not between 0 and 1");
  EXPECT_EQ(Refusal({.hedge_after_quantile = 0.9, .hedge_ratio = -0.5}), "hedge_ratio: -0.5 is outside of 0 to 1");
  EXPECT_EQ(Refusal({.hedge_ratio = 1.5}), "hedge_ratio: 1.5 is outside of 0 to 1");
  EXPECT_EQ(Refusal({.retry_on = {absl::StatusCode::kOk}}),
            "retry_on: OK is no failure; name statuses after which a replica is tried");
}

TEST(FanOutCallbacksTest, MapAndMergeMustNotBeEmpty) {
  const auto link = *Link::Create(LinkProfile());
  const auto fan_out = *FanOut::Create(link, {.workers = {"127.0.0.1:1"}});
  const Method<Text, Text> method{"/a.B/C"};
  const FanOut::Map<Text> map = [](size_t) { return Text(); };
  const FanOut::Merge<Text> merge = [](size_t, const Text&) { return absl::OkStatus(); };
  EXPECT_EQ(fan_out->Call(method, nullptr, merge).status.message(),
            "map: is empty; give a function that returns the request for a worker");
  EXPECT_EQ(fan_out->Collect(method, nullptr).first.status.message(),
            "map: is empty; give a function that returns the request for a worker");
  EXPECT_EQ(fan_out->Call(method, map, nullptr).status.message(),
            "merge: is empty; give a function that takes a response");
  fan_out->CallAsync(method, nullptr, merge, {}, nullptr);
  EXPECT_EQ(link->State().submitted_calls, 0);
}

TEST_F(FanOutRefusalTest, HedgesNeedAReplica) {
  EXPECT_EQ(Refusal({.hedge_after = absl::Milliseconds(20)}),
            "hedge_after is 20ms, but none of the 3 asks names a replica; set Ask::replicas in at least 1, or leave it "
            "unset");
  EXPECT_EQ(Refusal({.hedge_after_quantile = 0.95}),
            "hedge_after_quantile is 0.95, but none of the 3 asks names a replica; set Ask::replicas in at least 1, or "
            "leave it unset");
}

TEST(FanOutHedgeOptionsTest, AreValidWithoutAReplicaIfNothingIsHedged) {
  const FanOutOptions hedges = {.hedge_after = absl::Milliseconds(20)};
  const FanOutOptions off = {.hedge_after = absl::Milliseconds(20), .hedge_ratio = 0};
  const auto ask = [](std::vector<size_t> replicas) {
    return std::optional<Ask<std::string>>(std::in_place, "", std::nullopt, std::move(replicas));
  };
  EXPECT_EQ(ValidateFanOut("/a.B/C", {ask({}), ask({0})}, hedges), absl::OkStatus()) << "one ask has a replica";
  EXPECT_EQ(ValidateFanOut("/a.B/C", {ask({}), ask({})}, off), absl::OkStatus());
  EXPECT_EQ(ValidateFanOut("/a.B/C", {std::nullopt}, hedges), absl::OkStatus()) << "no worker is asked";
}

TEST_F(FanOutRefusalTest, NamesTheMetadataThatHttp2CannotCarry) {
  EXPECT_THAT(Refusal({.metadata = {{"good", "x"}, {"Bad", "x"}}}),
              AllOf(HasSubstr("metadata key \"Bad\""), HasSubstr("a-z")));
  EXPECT_EQ(Refusal({.metadata = {{"", "x"}}}), "metadata key is empty");
  EXPECT_THAT(Refusal({.metadata = {{"good", "a\nb"}}}),
              AllOf(HasSubstr("metadata \"good\""), HasSubstr("not printable ASCII")));
  EXPECT_THAT(Refusal({.metadata = {{"grpc-timeout", "1S"}}}),
              AllOf(HasSubstr("\"grpc-timeout\""), HasSubstr("reserved")));
  EXPECT_THAT(Refusal(Ask<Text>(Text(), std::nullopt, {}, {{"Bad", "x"}})),
              AllOf(HasSubstr("ask of worker 1"), HasSubstr("metadata key \"Bad\"")));
}

TEST_F(FanOutRefusalTest, NamesTheAskTheValueAndTheBound) {
  EXPECT_EQ(Refusal(Ask<Text>(Text(), -1)), "ask of worker 1: response_bytes: -1 is outside of 0 to 4294967296");
  EXPECT_EQ(Refusal(Ask<Text>(Text(), kMaxResponseBytes + 1)),
            "ask of worker 1: response_bytes: 4294967297 is outside of 0 to 4294967296");
  EXPECT_EQ(Refusal(Ask<Text>(Text(), std::nullopt, {0, 3})),
            "ask of worker 1: replica 3 is not one of the workers 0 to 2");
  EXPECT_EQ(Refusal(Ask<Text>(Text(), std::nullopt, {1})),
            "ask of worker 1: worker 1 is named twice, itself or among its replicas");
  EXPECT_EQ(Refusal(Ask<Text>(Text(), std::nullopt, {2, 2})),
            "ask of worker 1: worker 2 is named twice, itself or among its replicas");
}

}  // namespace
}  // namespace sluice
