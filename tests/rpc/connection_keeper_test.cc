#include "lib/rpc/connection_keeper.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/blocks/test_cluster.h"

namespace sluice {
namespace {

using testing::Eventually;
using testing::TestCluster;

// With the reader of a cluster, whose connections are kept. What is done where names change is in
// tests/apps/sluice_following_test.py.
class ConnectionKeeperTest : public ::testing::Test {
 protected:
  void Start(TestCluster::Options options) { cluster_ = std::make_unique<TestCluster>(std::move(options)); }

  bool AwaitConnected(double workers) {
    return Eventually([&] { return cluster_->Gauge("sluice_workers_connected") == workers; });
  }
  double Reconnects() const { return cluster_->Metric("sluice_worker_reconnect_seconds"); }

  std::unique_ptr<TestCluster> cluster_;
};

TEST_F(ConnectionKeeperTest, LeavesWorkersAloneThatNobodyHasUsed) {
  Start({.workers = 3});
  EXPECT_EQ(cluster_->Gauge("sluice_workers_wanted"), 3);
  ASSERT_TRUE(cluster_->Read(0).ok());
  EXPECT_TRUE(AwaitConnected(3));
  EXPECT_EQ(Reconnects(), 0);
  cluster_->MakeReader();
  EXPECT_TRUE(AwaitConnected(0)) << "the connections went with their reader";
  EXPECT_EQ(cluster_->Gauge("sluice_workers_wanted"), 3);
}

TEST_F(ConnectionKeeperTest, ConnectsToAllInTheBackground) {
  Start({.workers = 40, .sru_bytes = 100});
  cluster_->reader().ConnectInBackground();
  EXPECT_TRUE(AwaitConnected(40)) << "more than are connected to at once";
  EXPECT_EQ(cluster_->Requests(), 0);
}

TEST_F(ConnectionKeeperTest, ConnectsAgainToAWorkerThatWasAwayWithoutACall) {
  for (const Discipline discipline : {Discipline::kGrants, Discipline::kRolling}) {
    Start({.workers = 2, .schedule = {.discipline = discipline}});
    cluster_->reader().Connect();
    EXPECT_TRUE(AwaitConnected(2));
    cluster_->worker(1).Stop();
    EXPECT_TRUE(AwaitConnected(1));
    cluster_->worker(1).Start();
    EXPECT_TRUE(AwaitConnected(2));
    EXPECT_EQ(Reconnects(), 1);
    EXPECT_EQ(cluster_->Requests(), 0);
    EXPECT_TRUE(cluster_->Read(0).ok());
  }
}

// With grants a worker has two connections: it was connected over one, and small reads use the other one.
TEST_F(ConnectionKeeperTest, AWorkerThatIsBackIsBackForAllCalls) {
  Start({.workers = 2, .reader = {.attempts = 1}});
  cluster_->reader().Connect();
  ASSERT_TRUE(cluster_->Read(0).ok());
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(AwaitConnected(2));
    cluster_->worker(1).Stop();
    EXPECT_TRUE(AwaitConnected(1));
    EXPECT_FALSE(cluster_->Read(0).ok());
    cluster_->worker(1).Start();
    EXPECT_TRUE(AwaitConnected(2));
    const auto block = cluster_->Read(0);
    EXPECT_TRUE(block.ok()) << block.status();
  }
}

TEST_F(ConnectionKeeperTest, FindsAWorkerThatComesAfterTheStart) {
  Start({.workers = 2});
  cluster_->worker(1).Stop();
  EXPECT_EQ(cluster_->reader().Connect(), std::vector<std::string>{cluster_->worker(1).address()});
  EXPECT_TRUE(AwaitConnected(1));
  cluster_->worker(1).Start();
  EXPECT_TRUE(AwaitConnected(2));
  EXPECT_EQ(Reconnects(), 0) << "it was never lost";
}

TEST_F(ConnectionKeeperTest, AReadOfAWorkerThatIsAwayGoesToItsReplicaAtOnce) {
  Start({.workers = 3, .replicas = 2, .reader = {.sru_timeout = absl::Seconds(1000)}});
  cluster_->reader().Connect();
  ASSERT_TRUE(cluster_->Read(0).ok());
  cluster_->worker(0).Stop();
  const auto block = cluster_->Read(0);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_TRUE(block->data == cluster_->SourceBlock(0));
}

class SuccessorTest : public ConnectionKeeperTest {
 protected:
  std::unique_ptr<BlockReader> Successor(const BlockReader::Options& options) {
    auto reader = cluster_->reader().Successor(options);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return *std::move(reader);
  }
};

TEST_F(SuccessorTest, UsesTheConnectionsOfTheOneBefore) {
  Start({.workers = 2});
  cluster_->reader().Connect();
  EXPECT_TRUE(AwaitConnected(2));
  BlockReader::Options options = cluster_->reader_options();
  options.attempts = 7;
  const auto next = Successor(options);
  cluster_->DestroyReader();
  EXPECT_EQ(cluster_->Gauge("sluice_workers_connected"), 2);
  EXPECT_EQ(Reconnects(), 0);
  const auto block = next->Read("data", 1);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_TRUE(block->data == cluster_->SourceBlock(1));
}

TEST_F(SuccessorTest, ConnectsToWorkersThatAreNewAndForgetsThoseThatAreNot) {
  Start({.workers = 3, .listed_workers = 2});
  cluster_->reader().Connect();
  EXPECT_TRUE(AwaitConnected(2));
  EXPECT_EQ(cluster_->Read(0).status().code(), absl::StatusCode::kFailedPrecondition);
  BlockReader::Options options = cluster_->reader_options();
  options.workers.push_back(cluster_->worker(2).address());
  const auto more = Successor(options);
  EXPECT_TRUE(AwaitConnected(3));
  EXPECT_TRUE(more->Read("data", 0).ok());
  options.workers.resize(1);
  const auto fewer = more->Successor(options);
  ASSERT_TRUE(fewer.ok());
  EXPECT_EQ(cluster_->Gauge("sluice_workers_wanted"), 3) << "of the others";
}

TEST_F(SuccessorTest, AReadUnderWayEndsOnTheOneBefore) {
  Start({.workers = 2});
  const auto stream = cluster_->reader().Open("data", std::nullopt);
  ASSERT_TRUE(stream->Next().ok());
  const auto next = Successor(cluster_->reader_options());
  EXPECT_TRUE(next->Read("data", 0).ok());
  while (true) {
    const auto part = stream->Next();
    ASSERT_TRUE(part.ok()) << part.status();
    if (std::holds_alternative<ReadSummary>(*part)) break;
  }
}

TEST_F(SuccessorTest, RefusesOptionsThatAreOutOfBounds) {
  Start({.workers = 1});
  BlockReader::Options options = cluster_->reader_options();
  options.attempts = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(cluster_->reader().Successor(options).status()));
}

}  // namespace
}  // namespace sluice
