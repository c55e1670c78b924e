#include "sluice/metrics_server.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/counter.h"
#include "tests/has_code.h"
#include "tests/unit/telemetry/http_client.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using testing::HasCode;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class MetricsServerTest : public ::testing::Test {
 protected:
  void Start(Link::Options options = {}) {
    auto link = Link::Create(std::move(options));
    ASSERT_TRUE(link.ok()) << link.status();
    link_ = *std::move(link);
    auto server = MetricsServer::Start(link_, "127.0.0.1:0");
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::string Get(const std::string& path) {
    HttpClient client(server_->address());
    client.Send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    return client.Receive();
  }

  std::shared_ptr<Link> link_;
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, ServesCountersGaugesAndTheProcess) {
  Start();
  EXPECT_THAT(Get("/metrics"),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("sluice_build_info{"), HasSubstr("\nsluice_calls_total{"),
                    HasSubstr("\nsluice_budget_bytes 32768"), HasSubstr("\nprocess_resident_memory_bytes ")));
}

TEST_F(MetricsServerTest, ServesTheMetricsOfTheApplicationInTheSameRegistry) {
  const auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("searches_total").Help("Searches").Register(*registry).Add({}).Increment();
  Start({.registry = registry});
  EXPECT_THAT(Get("/metrics"), AllOf(HasSubstr("\nsearches_total 1"), HasSubstr("\nsluice_calls_total{")));
}

TEST_F(MetricsServerTest, ServesTheStatusPageAndItsData) {
  Start();
  EXPECT_THAT(Get("/"), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("text/html")));
  EXPECT_THAT(Get("/workers.json"), HasSubstr("\"total\""));
  for (const char* path : {"/healthz", "/livez", "/livez"}) EXPECT_THAT(Get(path), StartsWith("HTTP/1.1 200")) << path;
}

// As in docs/guides/adopt.md: prometheus::Exposer takes weak pointers that are not const.
TEST_F(MetricsServerTest, AServerOfTheApplicationCanHaveTheGauges) {
  Start();
  const std::weak_ptr<prometheus::Collectable> gauges =
      std::shared_ptr<prometheus::Collectable>(link_, &link_->gauges());
  ASSERT_FALSE(gauges.expired());
  EXPECT_FALSE(gauges.lock()->Collect().empty());
  server_.reset();
  link_.reset();
  EXPECT_TRUE(gauges.expired());
}

TEST_F(MetricsServerTest, KeepsTheLink) {
  Start();
  link_.reset();
  EXPECT_THAT(Get("/metrics"), HasSubstr("\nsluice_budget_bytes 32768"));
}

TEST_F(MetricsServerTest, NamesTheAddressThatItCannotServe) {
  Start();
  EXPECT_THAT(MetricsServer::Start(link_, "9464").status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(MetricsServer::Start(link_, server_->address()).status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(MetricsServer::Start(nullptr, "127.0.0.1:0").status(), HasCode(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace sluice
