#include "lib/link/worker_table.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/unit/link/worker_table_fixture.h"

// The state of workers and of their connections. worker_table_loss_test.cc tests which events are losses.
namespace sluice {
namespace {

using absl::Milliseconds;
using testing::FakeConnection;
using testing::WorkerTableTest;

TEST_F(WorkerTableTest, TheSameAddressHasTheSameRow) {
  const size_t a = table_.Add("a:1");
  const size_t b = table_.Add("b:1");
  EXPECT_NE(a, b);
  EXPECT_EQ(table_.Add("a:1"), a);
  EXPECT_EQ(table_.Add("b:1"), b);
  ASSERT_EQ(Summaries().size(), 3u);
  EXPECT_EQ(Summary(a).address, "a:1");
  EXPECT_EQ(Summary(b).address, "b:1");
}

TEST_F(WorkerTableTest, ShowsAWorkerUntilNobodyWantsIt) {
  const size_t worker = table_.Add("a:1");
  EXPECT_EQ(table_.Add("a:1"), worker);
  table_.Remove(worker);
  EXPECT_EQ(Summaries().size(), 2u);
  table_.Remove(worker);
  EXPECT_EQ(Summaries().size(), 1u);
  EXPECT_EQ(table_.Add("a:1"), worker) << "its row stays for a while";
  EXPECT_EQ(Summaries().size(), 2u);
}

// Each pod has a different address.
TEST_F(WorkerTableTest, ItsRowsDoNotGrowWithTheWorkersThatAreGone) {
  constexpr auto kMost = static_cast<int>(WorkerTable::kMaxGone);
  for (int i = 0; i < 3 * kMost; ++i) {
    const size_t pod = table_.Add(absl::StrCat("pod-", i));
    EXPECT_LE(pod, WorkerTable::kMaxGone + 1);
    EXPECT_EQ(table_.generation(pod), static_cast<uint64_t>(i / (kMost + 1)));
    EXPECT_EQ(Summaries().back().address, absl::StrCat("pod-", i));
    EXPECT_EQ(Summaries().back().responses, 0) << "of another worker";
    EXPECT_EQ(table_.OnReport(pod, 51234, {7, 1}).retransmits, 7u) << "of another worker";
    table_.OnArrived(pod, Milliseconds(1), Milliseconds(1));
    const std::optional<size_t> forgotten = table_.Remove(pod);
    EXPECT_EQ(forgotten.has_value(), i >= kMost);
    EXPECT_NE(forgotten, pod);
  }
}

TEST_F(WorkerTableTest, ForgetsTheWorkerThatIsGoneForTheLongestTime) {
  const size_t first = table_.Add("first:1");
  const size_t second = table_.Add("second:1");
  table_.OnArrived(first, Milliseconds(1), Milliseconds(1));
  EXPECT_EQ(table_.Remove(first), std::nullopt);
  EXPECT_EQ(table_.Remove(second), std::nullopt);
  EXPECT_EQ(table_.Add("first:1"), first);
  EXPECT_EQ(Summary(first).responses, 1) << "it came back soon";
  EXPECT_EQ(table_.Remove(first), std::nullopt);
  std::vector<size_t> others;
  for (size_t i = 0; i < WorkerTable::kMaxGone; ++i) others.push_back(table_.Add(absl::StrCat("other-", i)));
  for (size_t i = 0; i + 2 < others.size(); ++i) EXPECT_EQ(table_.Remove(others[i]), std::nullopt);
  EXPECT_EQ(table_.Remove(others[others.size() - 2]), second);
  EXPECT_EQ(table_.Remove(others.back()), first);
  EXPECT_EQ(table_.Add("new:1"), first);
  EXPECT_EQ(Summary(first).responses, 0);
  EXPECT_EQ(table_.Add("first:1"), second);
}

TEST_F(WorkerTableTest, ALookInSlicesSeesAsMuchAsOneAtOnce) {
  WorkerTable in_slices;
  in_slices.Add("worker-1:20000");
  for (int i = 0; i < 5; ++i) {
    const std::string address = absl::StrCat("more-", i, ":1");
    Connect(table_.Add(address));
    in_slices.Add(address);
  }
  const auto look_in_slices = [&] {
    const std::vector<WorkerTable::Socket> sockets = Sockets();
    in_slices.BeginLook(now_, TimePoint(), TimePoint());
    for (size_t i = 0; i < sockets.size(); i += 4) {
      in_slices.LookAt(now_, absl::MakeConstSpan(sockets).subspan(i, 4));
    }
    return in_slices.EndLook();
  };
  Look();
  look_in_slices();
  for (FakeConnection& connection : connections_) Ask(connection, false);
  for (int look = 0; look < 2; ++look) {
    Pass(Milliseconds(150));
    connections_[1].socket.info.out_of_order_packets += 2;
    if (look == 1) {
      for (FakeConnection& connection : connections_) Receive(connection, kAnswerBytes);
    }
    const LinkSight at_once = Look();
    const LinkSight sliced = look_in_slices();
    EXPECT_EQ(sliced.connections, 6);
    EXPECT_EQ(sliced.out_of_order_packets, at_once.out_of_order_packets);
    EXPECT_EQ(sliced.losses_out_of_order, at_once.losses_out_of_order);
    EXPECT_EQ(sliced.losses_silent, at_once.losses_silent);
    EXPECT_EQ(sliced.rto_waits, at_once.rto_waits);
    EXPECT_EQ(sliced.active_workers, at_once.active_workers);
    EXPECT_EQ(sliced.lossy_workers, at_once.lossy_workers);
    EXPECT_EQ(sliced.worst_out_of_order, at_once.worst_out_of_order);
    EXPECT_EQ(sliced.smoothed_rtt, at_once.smoothed_rtt);
    EXPECT_EQ(sliced.lossy_workers, look == 0 ? 0 : 6);
  }
}

TEST_F(WorkerTableTest, CountsTheWorkersThatAreConnected) {
  const auto expect_reached = [&](int64_t wanted, int64_t connected) {
    EXPECT_EQ(table_.CountReached().wanted, wanted);
    EXPECT_EQ(table_.CountReached().connected, connected);
  };
  const size_t other = table_.Add("a:1");
  expect_reached(2, 0);
  table_.OnConnected(worker_, now_);
  table_.OnConnected(worker_, now_);
  expect_reached(2, 1);
  table_.OnLost(worker_, now_);
  expect_reached(2, 1);
  table_.OnConnected(other, now_);
  expect_reached(2, 2);
  table_.OnForgotten(other);
  table_.OnLost(worker_, now_);
  expect_reached(2, 0);
  table_.Remove(other);
  expect_reached(1, 0);
}

TEST_F(WorkerTableTest, TellsHowLongAWorkerWasNotReached) {
  EXPECT_EQ(table_.OnConnected(worker_, now_), std::nullopt) << "the first connection";
  EXPECT_EQ(table_.OnConnected(worker_, now_), std::nullopt) << "a second one";
  table_.OnLost(worker_, now_);
  Pass(Milliseconds(10));
  EXPECT_EQ(table_.OnConnected(worker_, now_), std::nullopt) << "the first one still stood";
  table_.OnLost(worker_, now_);
  table_.OnLost(worker_, now_);
  Pass(Milliseconds(30));
  EXPECT_EQ(table_.OnConnected(worker_, now_), Milliseconds(30));
  table_.OnForgotten(worker_);
  EXPECT_EQ(table_.OnConnected(worker_, now_), std::nullopt) << "it was not lost";
  table_.OnLost(worker_, now_);
  table_.Remove(worker_);
  Pass(Milliseconds(50));
  table_.Add("worker-1:20000");
  EXPECT_EQ(table_.OnConnected(worker_, now_), std::nullopt) << "nobody wanted it";
}

TEST_F(WorkerTableTest, OfAWorkerThatWasNeverAskedNothingIsKnown) {
  const WorkerSummary summary = Summary(table_.Add("new:1"));
  EXPECT_EQ(summary.responses, 0);
  EXPECT_EQ(summary.in_flight, 0);
  EXPECT_EQ(summary.losses, 0);
  EXPECT_EQ(summary.rtos, 0);
  EXPECT_EQ(summary.ready, absl::InfiniteDuration());
  EXPECT_EQ(summary.transfer, absl::InfiniteDuration());
  EXPECT_EQ(summary.rtt, absl::InfiniteDuration());
}

TEST_F(WorkerTableTest, CountsCallsThatAreOutAndResponsesThatHaveCome) {
  Ask();
  Ask();
  EXPECT_EQ(Summary().in_flight, 2);
  End();
  EXPECT_EQ(Summary().in_flight, 1);
  EXPECT_EQ(Summary().responses, 0) << "an end is no answer";
  table_.OnArrived(worker_, Milliseconds(1), Milliseconds(2));
  EXPECT_EQ(Summary().responses, 1);
  End();
  EXPECT_EQ(Summary().in_flight, 0);
}

TEST_F(WorkerTableTest, TimesAreMeansThatFollowTheLastAnswers) {
  table_.OnArrived(worker_, Milliseconds(16), Milliseconds(160));
  EXPECT_EQ(Summary().ready, Milliseconds(16));
  EXPECT_EQ(Summary().transfer, Milliseconds(160));
  table_.OnArrived(worker_, Milliseconds(32), Milliseconds(0));
  EXPECT_EQ(Summary().ready, Milliseconds(17));
  EXPECT_EQ(Summary().transfer, Milliseconds(150));
  for (int answer = 0; answer < 200; ++answer) table_.OnArrived(worker_, Milliseconds(5), Milliseconds(7));
  EXPECT_LT(absl::AbsDuration(Summary().ready - Milliseconds(5)), absl::Microseconds(1));
  EXPECT_LT(absl::AbsDuration(Summary().transfer - Milliseconds(7)), absl::Microseconds(1));
}

TEST_F(WorkerTableTest, ANewConnectionOfAWorkerCountsFromItsBeginning) {
  connection_.socket.info.out_of_order_packets = 7;
  Look();
  Close(connection_);
  Connect(worker_).socket.info.out_of_order_packets = 3;
  EXPECT_EQ(Look().out_of_order_packets, 3);
}

TEST_F(WorkerTableTest, TellsTheSmallestAndTheMeanRoundTrip) {
  connection_.socket.info.smoothed_rtt = Milliseconds(4);
  connection_.socket.info.min_rtt = Milliseconds(3);
  FakeConnection& second = Connect(worker_);
  second.socket.info.smoothed_rtt = Milliseconds(2);
  second.socket.info.min_rtt = Milliseconds(1);
  Connect(worker_).socket.info.smoothed_rtt = Milliseconds(6);  // from a kernel that does not report the smallest one
  const LinkSight sight = Look();
  EXPECT_EQ(sight.connections, 3);
  EXPECT_EQ(sight.min_rtt, Milliseconds(1));
  EXPECT_EQ(sight.smoothed_rtt, Milliseconds(4));
}

TEST_F(WorkerTableTest, RemembersTheRoundTripOfAWorker) {
  connection_.socket.info.smoothed_rtt = Milliseconds(4);
  Look();
  EXPECT_EQ(Summary().rtt, Milliseconds(4));
  connection_.socket.info.smoothed_rtt = Milliseconds(5);
  Look();
  EXPECT_EQ(Summary().rtt, Milliseconds(5));
  Close(connection_);
  Look();
  EXPECT_EQ(Summary().rtt, Milliseconds(5));
}

TEST_F(WorkerTableTest, EachConnectionCountsForItsWorker) {
  const size_t other = table_.Add("worker-2:20000");
  FakeConnection& other_connection = Connect(other);
  connection_.socket.info.smoothed_rtt = Milliseconds(4);
  other_connection.socket.info.smoothed_rtt = Milliseconds(6);
  connection_.socket.info.out_of_order_packets = 7;
  other_connection.socket.info.out_of_order_packets = 3;
  const LinkSight sight = Look();
  EXPECT_EQ(sight.connections, 2);
  EXPECT_EQ(sight.out_of_order_packets, 10);
  EXPECT_EQ(Summary(worker_).rtt, Milliseconds(4));
  EXPECT_EQ(Summary(other).rtt, Milliseconds(6));
}

TEST_F(WorkerTableTest, WithoutConnectionsThereAreNoRoundTrips) {
  Close(connection_);
  const LinkSight sight = Look();
  EXPECT_EQ(sight.connections, 0);
  EXPECT_EQ(sight.min_rtt, std::nullopt);
  EXPECT_EQ(sight.smoothed_rtt, std::nullopt);
}

TEST_F(WorkerTableTest, TellsWhatIsNewInTheReportsOfAWorker) {
  EXPECT_EQ(table_.OnReport(worker_, 51234, {7, 1}).retransmits, 7u);
  const WorkerTable::Reported news = table_.OnReport(worker_, 51234, {9, 1});
  EXPECT_EQ(news.retransmits, 2u);
  EXPECT_EQ(news.rtos, 0u);
  EXPECT_EQ(table_.OnReport(worker_, 51234, {9, 1}).retransmits, 0u) << "nothing is new";
  EXPECT_EQ(table_.OnReport(worker_, 51234, {9, 3}).rtos, 2u);
}

TEST_F(WorkerTableTest, TellsTheReportsOfWorkersAndOfTheirConnectionsApart) {
  const size_t other = table_.Add("worker-2:20000");
  table_.OnReport(worker_, 51234, {7, 1});
  EXPECT_EQ(table_.OnReport(worker_, 51235, {8, 2}).retransmits, 8u);
  EXPECT_EQ(table_.OnReport(other, 51234, {9, 3}).retransmits, 9u);
  EXPECT_EQ(table_.OnReport(worker_, 51234, {10, 1}).retransmits, 3u);
}

TEST_F(WorkerTableTest, AReportOfLessIsThatOfANewConnection) {
  table_.OnReport(worker_, 51234, {700, 10});
  const WorkerTable::Reported news = table_.OnReport(worker_, 51234, {5, 2});
  EXPECT_EQ(news.retransmits, 5u);
  EXPECT_EQ(news.rtos, 2u);
  EXPECT_EQ(table_.OnReport(worker_, 51234, {6, 2}).retransmits, 1u);
}

// Otherwise a worker that often closes its connections would fill the memory with its 64,000 ports.
TEST_F(WorkerTableTest, KeepsTheLastReportsOfAWorker) {
  constexpr uint16_t kStays = 51234;
  table_.OnReport(worker_, kStays, {100, 0});
  table_.OnReport(worker_, 1, {100, 0});
  for (uint16_t port = 2; port <= 1000; ++port) {
    EXPECT_EQ(table_.OnReport(worker_, port, {5, 0}).retransmits, 5u);
    EXPECT_EQ(table_.OnReport(worker_, kStays, {100, 0}).retransmits, 0u) << "it has just reported";
  }
  EXPECT_EQ(table_.OnReport(worker_, 1000, {6, 0}).retransmits, 1u);
  EXPECT_EQ(table_.OnReport(worker_, 1, {101, 0}).retransmits, 101u) << "it is forgotten";
}

}  // namespace
}  // namespace sluice
