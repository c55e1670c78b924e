#include "sluice/fan_out.h"

#include "tests/unit/fan_out/fan_out_fixture.h"
#include "tests/unit/grpc_wire/test_messages.h"

namespace sluice {
namespace {

using testing::Fails;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::NameOf;
using testing::Script;
using testing::ScriptedServer;
using testing::Seen;
using testing::Text;
using testing::TextOf;
using testing::Wire;

// Requests that servers decompress, and responses that servers compress. tests/interop tests gRPC's own servers.
class FanOutCompressionTest : public testing::FanOutTest {
 protected:
  static FanOut::Map<Text> AskEach(std::vector<std::string> values) {
    return [values = std::move(values)](size_t worker) -> std::optional<sluice::Ask<Text>> {
      if (worker >= values.size()) return std::nullopt;
      return TextOf(values[worker]);
    };
  }
  // Sends messages with these bytes, and sets their compressed flag.
  static ScriptedServer::Play Sends(const std::vector<std::string>& messages) {
    return [messages](const Seen&) {
      return Script{.messages = messages, .compressed = true, .headers = {{"grpc-encoding", "gzip"}}};
    };
  }
};

INSTANTIATE_TEST_SUITE_P(By, FanOutCompressionTest,
                         ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants), NameOf);

TEST_P(FanOutCompressionTest, RequestsArriveAsTheyWere) {
  // A request that gets smaller, a request that does not, and an empty request.
  const std::vector<std::string> values = {std::string(1 << 20, 'x'), "x", ""};
  Start(values.size());
  for (const auto& method : {kUnary, kStream}) {
    const auto result = fan_out_->Call(method, AskEach(values), Ignore(), {.compress_requests = true});
    ASSERT_TRUE(result.status.ok()) << result.status;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(server(i).seen().size(), 2u);
    for (const testing::Seen& seen : server(i).seen()) EXPECT_TRUE(seen.request == Wire(values[i])) << i;
  }
}

TEST_P(FanOutCompressionTest, ARetryBringsTheSameRequest) {
  Start(2);
  server(0).SetPlay(Fails(absl::StatusCode::kUnavailable));
  const std::string value(10'000, 'x');
  const auto map = [&](size_t worker) -> std::optional<sluice::Ask<Text>> {
    if (worker != 0) return std::nullopt;
    return sluice::Ask<Text>(TextOf(value), std::nullopt, {1});
  };
  const auto result = fan_out_->Call(kUnary, map, Ignore(), {.compress_requests = true});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(server(1).seen().at(0).request, Wire(value));
}

TEST_P(FanOutCompressionTest, ResponsesAreDecompressed) {
  Start(1);
  const std::vector<std::string> values = {std::string(1 << 20, 'x'), "", "y"};
  server(0).SetPlay(Sends({GzipOf(Wire(values[0])), GzipOf(Wire(values[1])), GzipOf(Wire(values[2]))}));
  const auto [result, responses] = fan_out_->Collect(kStream, AskEach({"what?"}));
  ASSERT_TRUE(result.status.ok()) << result.status;
  std::vector<std::string> came;
  for (const Text& answer : responses.at(0)) came.push_back(answer.value());
  EXPECT_TRUE(came == values);
  const size_t bytes = Wire(values[0]).size() + Wire(values[1]).size() + Wire(values[2]).size();
  EXPECT_EQ(result.response_bytes, static_cast<int64_t>(bytes));
  EXPECT_EQ(Metric("sluice_goodput_bytes_total", "primary"), static_cast<double>(bytes));
}

TEST_P(FanOutCompressionTest, ABombFailsItsWorker) {
  Start(2, {}, {.max_response_bytes = 1 << 20});
  server(0).SetPlay(Sends({GzipOf(std::string(16 << 20, '\0'))}));
  const auto result = fan_out_->Call(kUnary, Ask(2), Ignore(), {.fail_limit = 1});
  EXPECT_TRUE(result.status.ok()) << result.status;
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].primary, 0u);
  EXPECT_THAT(result.failures[0].status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(result.failures[0].status.message()),
              HasSubstr("once it is decompressed; this client's max_response_bytes is 1048576"));
  EXPECT_EQ(result.answered, 1u);
}

TEST_P(FanOutCompressionTest, WhatDoesNotDecompressIsAskedOfAReplica) {
  Start(2);
  server(0).SetPlay(Sends({"no gzip"}));
  const auto result = fan_out_->Call(kUnary, Ask(1, {1}), Ignore());
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.retries, 1u);
  EXPECT_EQ(Metric("sluice_calls_total", "corrupt"), 1);
}

}  // namespace
}  // namespace sluice
