#include "absl/algorithm/container.h"
#include "lib/link/worker_table.h"
#include "tests/unit/link/worker_table_fixture.h"

// The number of workers that lose packets at a time, and the number of active workers.
namespace sluice {
namespace {

using absl::Milliseconds;
using absl::Seconds;
using testing::FakeConnection;

using WorkerTableSightTest = testing::WorkerTableTest;

TEST_F(WorkerTableSightTest, WorkersThatLoseWithinHalfASecondLoseTogether) {
  const size_t other = table_.Add("worker-2:20000");
  FakeConnection& other_connection = Connect(other);
  const auto lose = [&](FakeConnection& connection) {
    Ask(connection, /*acknowledged=*/false);
    LookAfter(Milliseconds(90));
    Receive(connection, kAnswerBytes);
    End(connection);
    return Look().lossy_workers;
  };
  EXPECT_EQ(lose(connection_), 1);
  EXPECT_EQ(lose(connection_), 1) << "of one worker";
  EXPECT_EQ(lose(other_connection), 2);
  EXPECT_EQ(LookAfter(Milliseconds(410)).lossy_workers, 2);
  EXPECT_EQ(LookAfter(Milliseconds(90)).lossy_workers, 1);
  EXPECT_EQ(LookAfter(Milliseconds(1)).lossy_workers, 0);
  EXPECT_EQ(lose(other_connection), 1);
  Pass(Milliseconds(1));
  EXPECT_EQ(Look(now_).lossy_workers, 0) << "it was decided on";
}

TEST_F(WorkerTableSightTest, TellsHowManyResponsesOutOfOrderAreOfOneWorker) {
  const size_t other = table_.Add("worker-2:20000");
  FakeConnection& other_connection = Connect(other);
  const auto overtake = [&](FakeConnection& connection) {
    Ask(connection, /*acknowledged=*/true);
    ++connection.socket.info.out_of_order_packets;
    End(connection);
  };
  overtake(connection_);
  EXPECT_EQ(Look().worst_out_of_order, 1);
  overtake(connection_);
  EXPECT_EQ(Look().worst_out_of_order, 2);
  overtake(other_connection);
  EXPECT_EQ(Look().worst_out_of_order, 2);
  overtake(other_connection);
  EXPECT_EQ(Look(now_).worst_out_of_order, 1) << "the count began again";
  const absl::Duration until_counted = Milliseconds(1);
  const TimePoint counted_since = now_ + absl::ToChronoNanoseconds(until_counted);
  overtake(connection_);
  EXPECT_EQ(Look(counted_since).worst_out_of_order, 0) << "the count has not begun";
  Pass(until_counted);
  overtake(connection_);
  EXPECT_EQ(Look(counted_since).worst_out_of_order, 1);
}

TEST_F(WorkerTableSightTest, AWorkerIsActiveWhileItHasCallsOrSends) {
  Connect(worker_);
  Connect(table_.Add("worker-2:20000"));
  EXPECT_EQ(Look().active_workers, 0);
  Receive(1);
  EXPECT_EQ(Look().active_workers, 1);
  Ask();
  EXPECT_EQ(Look().active_workers, 1) << "it has two connections";
  EXPECT_EQ(LookAfter(Seconds(1)).active_workers, 1);
  Ask(connections_.back(), true);
  EXPECT_EQ(Look().active_workers, 2);
}

// Otherwise a worker that lost packets, and whose neighbours have just ended, would be the only evidence of the link.
TEST_F(WorkerTableSightTest, WorkersThatWereActiveSinceALossCountWithIt) {
  FakeConnection& neighbour = Connect(table_.Add("worker-2:20000"));
  Ask(/*acknowledged=*/false);
  EXPECT_EQ(LookAfter(Milliseconds(100)).active_workers, 1);
  Answer();
  Receive(neighbour, 1);
  EXPECT_EQ(LookAfter(Milliseconds(100)).active_workers, 2);
  const LinkSight later = LookAfter(Milliseconds(100));
  EXPECT_EQ(later.lossy_workers, 1);
  EXPECT_EQ(later.active_workers, 2);
  EXPECT_EQ(LookAfter(Milliseconds(500)).active_workers, 0);
}

// For example the target of a tunnel, to which the link makes no connection.
TEST_F(WorkerTableSightTest, AWorkerThatNobodyHasTriedToReachIsNotUnreachable) {
  const std::string address = "worker-2:20000";
  const auto unreachable = [&] {
    const auto sights = table_.TakeFaultSights([](uint32_t) { return WorkerLoad(); });
    return absl::c_any_of(sights, [&](const auto& sight) { return sight.address == address && sight.unreachable; });
  };
  const size_t other = table_.Add(address);
  EXPECT_FALSE(unreachable());
  table_.OnUnreachable(other);
  EXPECT_TRUE(unreachable());
  table_.OnConnected(other, now_);
  EXPECT_FALSE(unreachable());
  table_.OnLost(other, now_);
  EXPECT_TRUE(unreachable());
  table_.Remove(other);
  table_.Add(address);
  EXPECT_FALSE(unreachable()) << "nobody has tried since";
}

TEST_F(WorkerTableSightTest, AWorkerThatIsWantedAgainBringsNoOldEvidence) {
  const auto hung = [&] {
    return absl::c_any_of(table_.TakeFaultSights([](uint32_t) { return WorkerLoad(); }),
                          [](const auto& sight) { return sight.hung; });
  };
  const std::string address = "worker-2:20000";
  const size_t other = table_.Add(address);
  for (const bool gone : {false, true}) {
    for (int call = 0; call < 2; ++call) table_.OnUnanswered(other);
    if (gone) {
      table_.Remove(other);
      EXPECT_FALSE(table_.IsWanted(address));
      table_.Add(address);
    }
    EXPECT_TRUE(table_.IsWanted(address));
    EXPECT_EQ(hung(), !gone);
    EXPECT_FALSE(hung()) << "it was taken";
  }
  EXPECT_FALSE(table_.IsWanted("worker-3:20000"));
}

}  // namespace
}  // namespace sluice
