#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/sharing/share_clients.h"

// Turns, when the next calls of all clients do not fit the budget together: no client waits permanently, regardless of
// the others.
namespace sluice {
namespace {

using std::chrono_literals::operator""ms;

// A call was sent, and its worker has not begun to respond.
ShareReport Thinking(int64_t demand_bytes) {
  return {.demand_bytes = demand_bytes, .in_flight_bytes = 192};
}

// Makes a call when its lease allows it, and has received the response by the next millisecond.
class Reader {
 public:
  Reader(Clients& clients, uint64_t client, int64_t answer_bytes) : clients_(clients), client_(client) {
    report_ = Busy(0, answer_bytes);
  }
  void Report(TimePoint now) {
    report_.received_bytes += std::exchange(report_.in_flight_bytes, 0);
    clients_.Report(now, client_, report_);
    if (clients_.lease(client_) < report_.need_bytes) return;
    ++turns_;
    report_.in_flight_bytes = report_.need_bytes;
  }
  int64_t turns() const { return turns_; }  // reports with a lease that suffices for a call

 private:
  Clients& clients_;
  const uint64_t client_;
  ShareReport report_;
  int64_t turns_ = 0;
};

TEST(TurnsTest, OneCallAtASlowWorkerHoldsUpNobody) {
  Clients clients;
  constexpr int64_t kAnswer = 10'600;  // above a quarter of the budget, which is each client's share
  for (uint64_t client = 1; client <= 4; ++client) clients.Join(At(0ms), client, 1, Busy(0, kAnswer));
  std::vector<Reader> readers;
  for (uint64_t client = 2; client <= 4; ++client) readers.emplace_back(clients, client, kAnswer);
  for (TimePoint now = At(1ms); now < At(200ms); now += 1ms) {
    clients.Report(now, 1, Thinking(kAnswer));
    for (Reader& reader : readers) reader.Report(now);
  }
  for (const Reader& reader : readers) EXPECT_GT(reader.turns(), 40);
}

TEST(TurnsTest, ATurnInWhichNothingComesEnds) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy(0, 20'000));
  clients.Join(At(0ms), 2, 1, Busy(0, 20'000));
  ASSERT_EQ(clients.lease(1), kBudget);
  TimePoint now = At(1ms);
  for (; clients.lease(2) < 20'000 && now < At(1000ms); now += 1ms) {
    clients.Report(now, 1, Busy(192, 20'000));
    clients.Report(now, 2, Busy(0, 20'000));
  }
  EXPECT_LT(now, At(50ms));
}

TEST(TurnsTest, TheTimerEndsItWhereNobodyReports) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy(0, 20'000));
  clients.Join(At(5ms), 2, 1, Busy(0, 20'000));
  ASSERT_EQ(clients.lease(1), kBudget);
  EXPECT_EQ(clients.shares().NextTimer(), At(20ms));
  clients.Timer(At(20ms));
  EXPECT_EQ(clients.lease(1), 0);
  clients.Report(At(21ms), 1, Busy(0, 20'000));
  EXPECT_EQ(clients.lease(2), kBudget);
}

// No other client waits, so this client's next turn must not suffer.
TEST(TurnsTest, OneAloneMayWaitForItsWorkersAsLongAsItLikes) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy(0, 20'000));
  EXPECT_EQ(clients.shares().NextTimer(), At(100ms));
  for (TimePoint now = At(1ms); now < At(300ms); now += 1ms) clients.Report(now, 1, Busy(10'000, 20'000));
  EXPECT_EQ(clients.lease(1), kBudget);
}

TEST(TurnsTest, ASmallCallGetsItsTurnBesideOneThatTakesAlmostAll) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy(0, 30'000));
  clients.Join(At(0ms), 2, 1, {.demand_bytes = 4000, .need_bytes = 4000});
  Reader large(clients, 1, 30'000);
  TimePoint now = At(1ms);
  for (; clients.lease(2) < 4000 && now < At(1000ms); now += 1ms) {
    large.Report(now);
    clients.Report(now, 2, {.demand_bytes = 4000, .need_bytes = 4000});
  }
  EXPECT_LT(now, At(50ms));
}

TEST(TurnsTest, AndOneThatTakesAlmostAllBesideSmallCalls) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, {.demand_bytes = 4000, .need_bytes = 4000});
  clients.Join(At(0ms), 2, 1, Busy(0, 30'000));
  int64_t received_bytes = 0;
  TimePoint now = At(1ms);
  for (; clients.lease(2) < 30'000 && now < At(1000ms); now += 1ms) {
    if (clients.lease(1) >= 4000) received_bytes += 4000;
    clients.Report(now, 1, {.demand_bytes = 4000, .need_bytes = 4000, .received_bytes = received_bytes});
    clients.Report(now, 2, Busy(0, 30'000));
  }
  EXPECT_LT(now, At(100ms));
}

TEST(PromisesTest, OneThatDoesNotAnswerIsHeldToTheLargestThatItWasTold) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy());
  const uint64_t first = clients.told(1).id;
  clients.Join(At(0ms), 2, 1, Busy());
  ASSERT_EQ(clients.lease(1), 16'000);
  for (int i = 1; i < 100; ++i) clients.SetBudget(At(0ms), i % 2 == 0 ? kBudget : 20'000);
  clients.SetBudget(At(0ms), kBudget);
  EXPECT_EQ(clients.shares().entitled_bytes(), kBudget);
  EXPECT_EQ(clients.lease(2), 0);
  clients.Late(At(1ms), 1, {.acknowledged = first, .demand_bytes = kLots, .need_bytes = 1000});
  EXPECT_EQ(clients.lease(2), 0);
  clients.Report(At(2ms), 1, Busy());
  EXPECT_EQ(clients.lease(2), 16'000);
}

TEST(SafeSharesTest, OneThatExpiredKeepsItsOwnUntilItLeaves) {
  Clients clients;
  clients.Join(At(0ms), 1);
  clients.Join(At(0ms), 2);
  clients.Report(At(1ms), 1, {});
  clients.Report(At(50ms), 2, {});
  ASSERT_EQ(clients.told(1).safe_bytes, 16'000);
  ASSERT_EQ(clients.told(2).safe_bytes, 16'000);
  clients.Timer(At(101ms));
  ASSERT_TRUE(clients.shares().State(1).expired);
  clients.Report(At(110ms), 2, {});
  EXPECT_EQ(clients.told(2).safe_bytes, 16'000);
  clients.Report(At(120ms), 1, {});
  EXPECT_EQ(clients.told(1).safe_bytes, 16'000);
  clients.Leave(At(130ms), 1);
  EXPECT_EQ(clients.told(2).safe_bytes, kBudget);
}

// UBSan fails it if the sum overflows.
TEST(TurnsTest, AProcessMayReportAnyNumbersOfReceivedBytes) {
  Clients clients;
  constexpr int64_t kMost = int64_t{1} << 60;  // that LeaseServer lets through
  clients.Join(At(0ms), 1);
  for (int i = 0; i < 9; ++i) {
    clients.Report(At(1ms), 1, {});
    clients.Report(At(1ms), 1, {.received_bytes = kMost});
  }
}

}  // namespace
}  // namespace sluice
