#include "sluice/fan_out.h"

#include "tests/fan_out/fan_out_fixture.h"

namespace sluice {
namespace {

using testing::Fails;
using testing::NameOf;
using testing::Text;
using testing::TextOf;
using testing::Wire;

// Requests that servers decompress. tests/interop has gRPC's own.
class FanOutCompressionTest : public testing::FanOutTest {
 protected:
  static FanOut::Map<Text> AskEach(std::vector<std::string> values) {
    return [values = std::move(values)](size_t worker) -> std::optional<sluice::Ask<Text>> {
      if (worker >= values.size()) return std::nullopt;
      return TextOf(values[worker]);
    };
  }
};

INSTANTIATE_TEST_SUITE_P(By, FanOutCompressionTest, ::testing::Values(Discipline::kRolling, Discipline::kGrants),
                         NameOf);

TEST_P(FanOutCompressionTest, RequestsArriveAsTheyWere) {
  // One that gets smaller, one that does not, and none at all.
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

}  // namespace
}  // namespace sluice
