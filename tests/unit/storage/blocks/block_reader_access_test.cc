#include <string>
#include <vector>

#include "sluice/access_record.h"
#include "sluice/block_reader.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/silent_listener.h"
#include "tests/unit/storage/blocks/test_cluster.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::EventLog;
using testing::Eventually;
using testing::FlipByte;
using testing::HasCode;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;
using testing::TestCluster;
using ::testing::UnorderedElementsAre;

// The spans that a BlockReader reports.
class BlockReaderAccessTest : public ::testing::Test {
 protected:
  // Two workers; a block has an SRU on each.
  TestCluster::Options Cluster(uint32_t replicas = 1) {
    TestCluster::Options options{.workers = 2, .file_bytes = 4 * 4096, .replicas = replicas};
    options.reader.on_access = [this](const AccessRecord& record) {
      EXPECT_EQ(record.group, "");
      if (record.ready != absl::InfiniteDuration()) {
        EXPECT_EQ(record.waited + record.ready + record.received, record.took);
        EXPECT_LE(record.granted, record.took);
      }
      workers_.Add(std::string(record.worker));
      if (!record.limit.empty()) limits_.Add(std::string(record.limit));
      spans_.Add(absl::StrCat(record.method, " ", absl::StatusCodeToString(record.outcome), " ",
                              record.response_bytes >= 4096 ? "an SRU" : "less", " ", record.traceparent));
    };
    return options;
  }
  static ReadOptions Traced() { return {.metadata = {{"traceparent", "00-1-2-01"}}}; }

  EventLog spans_;
  EventLog workers_;
  EventLog limits_;
};

TEST_F(BlockReaderAccessTest, EachRequestHasASpanWithItsContext) {
  TestCluster cluster(Cluster());
  ASSERT_TRUE(cluster.Read(0, Traced()).ok());
  EXPECT_THAT(spans_.Await(3), UnorderedElementsAre("/sluice.v1.SruService/ReadManifest OK less 00-1-2-01",
                                                    "/sluice.v1.SruService/ReadSru OK an SRU 00-1-2-01",
                                                    "/sluice.v1.SruService/ReadSru OK an SRU 00-1-2-01"));
  EXPECT_THAT(workers_.events(), IsSupersetOf({cluster.worker(0).address(), cluster.worker(1).address()}));
  ASSERT_TRUE(cluster.Read(1).ok());
  EXPECT_THAT(spans_.Await(5), SizeIs(5)) << "the manifest is known";
}

TEST_F(BlockReaderAccessTest, ARetryIsASpanOfItsOwn) {
  TestCluster cluster(Cluster(/*replicas=*/2));
  cluster.worker(0).SpoilSrus([](const auto&) { return FlipByte(); });
  ASSERT_TRUE(cluster.Read(0, Traced()).ok());
  EXPECT_THAT(spans_.Await(4), UnorderedElementsAre("/sluice.v1.SruService/ReadManifest OK less 00-1-2-01",
                                                    "/sluice.v1.SruService/ReadSru DATA_LOSS an SRU 00-1-2-01",
                                                    "/sluice.v1.SruService/ReadSru OK an SRU 00-1-2-01",
                                                    "/sluice.v1.SruService/ReadSru OK an SRU 00-1-2-01"));
}

TEST_F(BlockReaderAccessTest, ASuccessorReportsToo) {
  TestCluster cluster(Cluster());
  const auto successor = cluster.reader().Successor(cluster.reader_options());
  ASSERT_TRUE(successor.ok()) << successor.status();
  ASSERT_TRUE((*successor)->Read("data", 0, Traced()).ok());
  EXPECT_THAT(spans_.Await(3), SizeIs(3));
}

// The queue has room for the request of the manifest, and then not for both SRUs.
TEST_F(BlockReaderAccessTest, TheLimitOfARefusedReadIsNamed) {
  auto options = Cluster();
  options.schedule.queue_limit = 2;
  TestCluster cluster(std::move(options));
  const testing::SilentListener silent;
  const auto other = BlockReader::Create(cluster.shared_link(), {.workers = {silent.address()}});
  ASSERT_TRUE(other.ok()) << other.status();
  const auto waiting = (*other)->Open("data", std::nullopt);
  waiting->Next([](const auto&) {});
  ASSERT_TRUE(Eventually([&] { return cluster.link().State().waiting_calls == 1; }));
  EXPECT_THAT(cluster.Read(0).status(), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(limits_.Await(2), ElementsAre("schedule.queue_limit", "schedule.queue_limit"));
}

}  // namespace
}  // namespace sluice
