#include "lib/proxy/proxy_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/telemetry/scrape.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ProxyMetricsTest : public ::testing::Test {
 protected:
  std::string Text() const { return ScrapeText({&registry_}); }
  size_t Series(const std::string& family) const {
    for (const auto& collected : registry_.Collect()) {
      if (collected.name == family) return collected.metric.size();
    }
    return 0;
  }

  prometheus::Registry registry_;
  ProxyMetrics metrics_{registry_};
};

TEST_F(ProxyMetricsTest, ConnectionsAreCountedByWhatTheyAre) {
  metrics_.CountConnection(ProxyConnection::kConnect);
  metrics_.CountConnection(ProxyConnection::kRefused);
  metrics_.CountConnection(ProxyConnection::kRefused);
  metrics_.SetConnections(3);
  EXPECT_THAT(Text(), HasSubstr("\nsluice_proxy_connections_total{kind=\"http2\"} 0\n"));
  EXPECT_THAT(Text(), HasSubstr("\nsluice_proxy_connections_total{kind=\"connect\"} 1\n"));
  EXPECT_THAT(Text(), HasSubstr("\nsluice_proxy_connections_total{kind=\"refused\"} 2\n"));
  EXPECT_THAT(Text(), HasSubstr("\nsluice_proxy_connections 3\n"));
}

TEST_F(ProxyMetricsTest, CallsAreCountedByPatternAndStatus) {
  metrics_.CountCall("*.svc:7000", absl::StatusCode::kOk);
  metrics_.CountCall("*.svc:7000", absl::StatusCode::kOk);
  metrics_.CountCall("", absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Text(), HasSubstr("{code=\"OK\",workers=\"*.svc:7000\"} 2\n"));
  EXPECT_THAT(Text(), HasSubstr("{code=\"PERMISSION_DENIED\",workers=\"none\"} 1\n"));
}

TEST_F(ProxyMetricsTest, ClientsCannotMakeSeriesWithoutEnd) {
  for (int i = 0; i < 1000; ++i) metrics_.ObserveCall(absl::StrCat("/a/", i), true, absl::Milliseconds(1));
  EXPECT_EQ(Series("sluice_proxy_call_seconds"), ProxyMetrics::kMaxMethods + 1);
  EXPECT_THAT(Text(), HasSubstr("sluice_proxy_call_seconds_count{method=\"/a/0\"} 1\n"));
  EXPECT_THAT(Text(), HasSubstr("sluice_proxy_call_seconds_count{method=\"other\"} 900\n"));
  metrics_.ObserveCall("/a/7", true, absl::Milliseconds(1));
  metrics_.ObserveCall("/b/7", true, absl::Milliseconds(1));
  EXPECT_THAT(Text(), HasSubstr("sluice_proxy_call_seconds_count{method=\"/a/7\"} 2\n")) << "it goes on";
  EXPECT_THAT(Text(), HasSubstr("sluice_proxy_call_seconds_count{method=\"other\"} 901\n"));
}

TEST_F(ProxyMetricsTest, NamesThatNoWorkerKnowsTakeNoSeries) {
  for (int i = 0; i < 1000; ++i) metrics_.ObserveCall(absl::StrCat("/junk/", i), false, absl::Milliseconds(1));
  EXPECT_EQ(Series("sluice_proxy_call_seconds"), 1U);
  metrics_.ObserveCall("/a/0", true, absl::Milliseconds(1));
  metrics_.ObserveCall("/a/0", false, absl::Milliseconds(1));
  EXPECT_THAT(Text(), HasSubstr("sluice_proxy_call_seconds_count{method=\"/a/0\"} 2\n"))
      << "one that failed is its, too";
  EXPECT_THAT(Text(), HasSubstr("sluice_proxy_call_seconds_count{method=\"other\"} 1000\n"));
}

// A label that is not UTF-8 would fail the whole scrape; :path may contain any byte from 0x80 on.
TEST_F(ProxyMetricsTest, AMethodThatIsNoNameHasNoSeriesOfItsOwn) {
  metrics_.ObserveCall("/a\xff/b", true, absl::Milliseconds(1));
  metrics_.ObserveCall("/" + std::string(60000, 'x'), true, absl::Milliseconds(1));
  EXPECT_EQ(Series("sluice_proxy_call_seconds"), 1U);
  EXPECT_THAT(Text(), HasSubstr("sluice_proxy_call_seconds_count{method=\"other\"} 2\n"));
  EXPECT_THAT(Text(), Not(HasSubstr("\xff")));
}

TEST_F(ProxyMetricsTest, GaugesShowTheLastValue) {
  metrics_.SetCalls(7);
  metrics_.SetHeldBytes(5);
  metrics_.SetHeldBytes(3);
  metrics_.SetHeldRequestBytes(4);
  metrics_.CountStuckCall();
  metrics_.CountIdleEnd();
  EXPECT_THAT(Text(), HasSubstr("\nsluice_proxy_calls 7\n"));
  EXPECT_THAT(Text(), HasSubstr("\nsluice_proxy_held_bytes 3\n"));
  EXPECT_THAT(Text(), HasSubstr("\nsluice_proxy_held_request_bytes 4\n"));
  EXPECT_THAT(Text(), HasSubstr("\nsluice_proxy_stuck_calls_total 1\n"));
  EXPECT_THAT(Text(), HasSubstr("\nsluice_proxy_idle_ends_total 1\n"));
}

}  // namespace
}  // namespace sluice
