#include "tests/simulation/wire_oracle.h"

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/grpc_wire/request.h"

// Tests that the oracle of the simulation finds each kind of breach.
namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBudgetBytes = 30'000;
constexpr WireOracle::ConnectionId kConnection = 7;
constexpr WireOracle::ConnectionId kOther = 8;

std::string Frame(char type, char flags, uint32_t stream, const std::string& payload) {
  const auto byte = [](size_t number, int shift) { return static_cast<char>(number >> shift & 0xff); };
  return std::string{byte(payload.size(), 16), byte(payload.size(), 8), byte(payload.size(), 0), type,           flags,
                     byte(stream, 24),         byte(stream, 16),        byte(stream, 8),         byte(stream, 0)} +
         payload;
}
std::string Number(uint32_t number) {
  return {static_cast<char>(number >> 24), static_cast<char>(number >> 16), static_cast<char>(number >> 8),
          static_cast<char>(number)};
}
std::string Request(uint32_t stream) {
  return Frame(1, 4, stream, "headers") + Frame(0, 1, stream, "request");
}
std::string Grant(uint32_t stream, uint32_t bytes) {
  return Frame(8, 0, stream, Number(bytes));
}
std::string Reset(uint32_t stream, uint32_t error = 8) {
  return Frame(3, 0, stream, Number(error));
}
std::string Data(uint32_t stream, size_t bytes) {
  return Frame(0, 0, stream, std::string(bytes, 'x'));
}

// A request that says of which fan-out it is.
std::string RequestOf(uint32_t stream, uint64_t block, TimePoint deadline, size_t traffic_class = 0) {
  const std::string message =
      RequestFor({.block = block, .traffic_class = traffic_class, .deadline_ns = deadline.time_since_epoch().count()});
  return Frame(1, 4, stream, "headers") + Frame(0, 1, stream, FrameMessage(message));
}

class WireOracleTest : public ::testing::Test {
 protected:
  WireOracleTest() {
    for (const WireOracle::ConnectionId connection : {kConnection, kOther}) {
      oracle_.Opened(connection, connection - kConnection);
      Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(4, 0, 0, ""), connection);
      Receive(Frame(4, 0, 0, "") + Frame(4, 1, 0, ""), connection);
    }
  }

  static ScheduleOptions Schedule() {
    ScheduleOptions schedule;
    schedule.profile.capacity_bytes_per_second = 1e6;
    schedule.profile.buffer_bytes = kBudgetBytes;
    return schedule;
  }
  // The bytes arrive one at a time, as they may on a connection.
  void Send(const std::string& bytes, WireOracle::ConnectionId connection = kConnection) {
    for (const char byte : bytes) oracle_.Sent(connection, {&byte, 1}, now_);
  }
  void Receive(const std::string& bytes, WireOracle::ConnectionId connection = kConnection) {
    for (const char byte : bytes) oracle_.Received(connection, {&byte, 1}, now_);
  }
  // Sends a request, and receives the prefix of its response.
  void AskAndBeReady(uint32_t stream, WireOracle::ConnectionId connection = kConnection) {
    Send(Request(stream), connection);
    Receive(Frame(1, 4, stream, "headers") + Data(stream, 5), connection);
  }
  // Makes the schedule report this load of the first worker.
  void SetShare(int64_t share_bytes, bool slow) {
    oracle_.SetLoadOf([share_bytes, slow](size_t worker) {
      return worker == 0 ? WorkerLoad{.share_bytes = share_bytes, .slow = slow}
                         : WorkerLoad{.share_bytes = kBudgetBytes};
    });
  }
  // The first worker has this share, and its share is granted completely. A call of the other worker is ready.
  void FillShare(int64_t share_bytes) {
    SetShare(share_bytes, false);
    AskAndBeReady(1);
    AskAndBeReady(3, kOther);
    Send(Grant(1, static_cast<uint32_t>(share_bytes)));
    EXPECT_THAT(EndTurn(), IsEmpty());
  }
  // From the next turn on, the schedule counts the first worker as slow.
  void BeSlow(int64_t share_bytes) {
    SetShare(share_bytes, true);
    EXPECT_THAT(EndTurn(), IsEmpty());
    EXPECT_THAT(EndTurn(), IsEmpty());
  }
  std::vector<std::string> EndTurn() {
    oracle_.EndTurn(now_);
    return oracle_.TakeBreaches();
  }

  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  WireOracle oracle_{Schedule(), kBudgetBytes, 2};
};

TEST_F(WireOracleTest, FindsGrantsThatDoNotFitTheBudget) {
  AskAndBeReady(1);
  AskAndBeReady(3);
  Send(Grant(1, 15'000) + Grant(3, 10'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
  Send(Grant(3, 10'000));
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("the budget is 30000")));
}

TEST_F(WireOracleTest, WhatHasComeMakesRoom) {
  AskAndBeReady(1);
  AskAndBeReady(3);
  Send(Grant(1, 20'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
  Receive(Data(1, 20'000));
  Send(Grant(3, 20'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
}

TEST_F(WireOracleTest, OneCallAloneMayHaveMoreThanTheBudget) {
  AskAndBeReady(1);
  Send(Grant(1, 100'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
}

TEST_F(WireOracleTest, CallsOfTheTimeWithoutAScheduleCountNowhere) {
  oracle_.SetPolicy(SchedulePolicy::kUnscheduled);
  AskAndBeReady(1);
  AskAndBeReady(3);
  Send(Grant(1, 100'000) + Grant(3, 100'000));
  oracle_.HandshakeBegins(100, 20'000, now_);
  oracle_.HandshakeBegins(101, 20'000, now_);
  EXPECT_THAT(EndTurn(), IsEmpty());
  EXPECT_EQ(oracle_.ChargedUntil(kConnection, {1, 3}), TimePoint());
  oracle_.SetPolicy(SchedulePolicy::kGrants);
  AskAndBeReady(5);
  Send(Reset(1) + Grant(5, 30'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
  EXPECT_EQ(oracle_.ChargedUntil(kConnection, {1, 3}), TimePoint());
}

TEST_F(WireOracleTest, FindsGrantsThatDoNotFitOnceTheScheduleBegins) {
  AskAndBeReady(1);
  oracle_.SetPolicy(SchedulePolicy::kUnscheduled);
  EXPECT_THAT(EndTurn(), IsEmpty());
  oracle_.SetPolicy(SchedulePolicy::kGrants);
  AskAndBeReady(3);
  Send(Grant(1, 20'000) + Grant(3, 20'000));
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("the budget is 30000")));
}

TEST_F(WireOracleTest, FindsEarlyBytesAboveAThird) {
  Send(Request(1) + Grant(1, 5'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
  Send(Request(3) + Grant(3, 5'000));
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("early bytes are more than a third")));
}

TEST_F(WireOracleTest, FindsBudgetThatIsSpentAgainAfterAReset) {
  AskAndBeReady(1);
  AskAndBeReady(3);
  Send(Grant(1, 20'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
  Send(Reset(1) + Grant(3, 20'000));
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("the budget is 30000"))) << "it may still come";
}

TEST_F(WireOracleTest, AResetHasDrainedAfterAWhile) {
  AskAndBeReady(1);
  AskAndBeReady(3);
  Send(Grant(1, 20'000));
  Send(Reset(1));
  now_ += std::chrono::milliseconds(50);
  Send(Grant(3, 20'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
}

TEST_F(WireOracleTest, KnowsUntilWhenTheBudgetIsChargedForAStream) {
  const auto drain_time = std::chrono::milliseconds(30) + absl::ToChronoNanoseconds(Schedule().profile.propagation_rtt);
  for (const uint32_t stream : {1, 3, 5}) AskAndBeReady(stream);
  Send(Reset(1));
  now_ += std::chrono::milliseconds(1);
  Send(Reset(3));
  EXPECT_EQ(oracle_.ChargedUntil(kConnection, {1}), now_ + drain_time - std::chrono::milliseconds(1));
  EXPECT_EQ(oracle_.ChargedUntil(kConnection, {1, 3}), now_ + drain_time);
  EXPECT_EQ(oracle_.ChargedUntil(kConnection, {1, 5}), TimePoint::max());
  EXPECT_EQ(oracle_.ChargedUntil(kConnection, {}), TimePoint::max()) << "headers come at any time";
  EXPECT_EQ(oracle_.ChargedUntil(kOther, {1}), TimePoint::max());
  now_ += std::chrono::milliseconds(1);
  oracle_.Closed(kConnection, now_);
  EXPECT_EQ(oracle_.ChargedUntil(kConnection, {1, 3}), now_ + drain_time - std::chrono::milliseconds(1));
  EXPECT_EQ(oracle_.ChargedUntil(kConnection, {5}), now_ + drain_time);
}

TEST_F(WireOracleTest, StalledBytesAreNotCharged) {
  AskAndBeReady(1);
  AskAndBeReady(3);
  Send(Grant(1, 20'000));
  now_ += std::chrono::milliseconds(400);
  Send(Grant(3, 20'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
}

TEST_F(WireOracleTest, TheBudgetIsNotChargedForAStreamThatHasStalled) {
  for (const uint32_t stream : {1, 3, 5}) AskAndBeReady(stream);
  Send(Grant(1, 5'000) + Grant(3, 5'000) + Grant(5, 5'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
  now_ += std::chrono::milliseconds(400);
  Send(Reset(3) + Grant(1, 1));
  EXPECT_LT(oracle_.ChargedUntil(kConnection, {1, 3}), now_);
  Receive(Data(1, 5'001));
  EXPECT_EQ(oracle_.ChargedUntil(kConnection, {1, 3}), TimePoint::max()) << "all that had stalled is here";
  oracle_.Closed(kConnection, now_);
  EXPECT_LT(oracle_.ChargedUntil(kConnection, {5}), now_);
}

TEST_F(WireOracleTest, LengthPrefixesAreNoProgress) {
  const auto empty_messages = [](size_t count) { return Frame(0, 0, 1, std::string(5 * count, '\0')); };
  Send(Request(1));
  Receive(Frame(1, 4, 1, "headers") + empty_messages(1));
  AskAndBeReady(3);
  Send(Grant(1, 20'000));
  now_ += std::chrono::milliseconds(200);
  Receive(empty_messages(3));
  now_ += std::chrono::milliseconds(200);
  Send(Grant(3, 20'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
}

// One of three granted bytes comes, and then a prefix, which leaves no more of the window than its room.
TEST_F(WireOracleTest, AStallLastsWhilePrefixesFillTheWindow) {
  const std::string prefix("\0\0\0\0\1", 5);
  Send(Request(1));
  Receive(Frame(1, 4, 1, "headers") + Frame(0, 0, 1, prefix));
  AskAndBeReady(3);
  Send(Grant(1, 5 + 3));
  now_ += std::chrono::milliseconds(400);
  Receive(Frame(0, 0, 1, "x" + prefix));
  Send(Grant(1, 5) + Grant(3, 5 + 28'650));
  EXPECT_THAT(EndTurn(), IsEmpty());
}

TEST_F(WireOracleTest, RoomForThePrefixThatHasComeIsNoGrant) {
  Send(Request(1));
  Receive(Frame(1, 4, 1, "headers") + Frame(0, 0, 1, std::string(5, '\0')));
  AskAndBeReady(3);
  AskAndBeReady(5);
  Send(Grant(5, 10));
  EXPECT_THAT(EndTurn(), IsEmpty());
  Send(Grant(1, 6));  // the room for the prefix, and one byte
  now_ += std::chrono::milliseconds(200);
  Receive(Frame(0, 0, 1, std::string(7, '\0')));
  Send(Grant(1, 7));
  now_ += std::chrono::milliseconds(200);
  Send(Grant(3, 100'000));
  EXPECT_THAT(EndTurn(), IsEmpty()) << "the byte has stalled, so the call is alone";
}

TEST_F(WireOracleTest, AByteOfAMessageIsProgress) {
  AskAndBeReady(1);
  AskAndBeReady(3);
  Send(Grant(1, 20'000));
  now_ += std::chrono::milliseconds(200);
  Receive(Data(1, 1));
  now_ += std::chrono::milliseconds(200);
  Send(Grant(3, 20'000));
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("the budget is 30000")));
}

TEST_F(WireOracleTest, FindsBytesBeyondTheWindow) {
  AskAndBeReady(1);
  Send(Grant(1, 100));
  Receive(Data(1, 101));
  EXPECT_THAT(EndTurn(), IsEmpty());
  Receive(Data(1, 1));
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("more than its window")));
}

TEST_F(WireOracleTest, FindsHandshakesAboveAThird) {
  oracle_.HandshakeBegins(1, 5'000, now_);
  EXPECT_THAT(EndTurn(), IsEmpty());
  oracle_.HandshakeBegins(2, 5'000, now_);
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("2 handshakes")));
}

TEST_F(WireOracleTest, OneHandshakeAloneMayHaveMoreThanAThird) {
  oracle_.HandshakeBegins(1, 20'000, now_);
  EXPECT_THAT(EndTurn(), IsEmpty());
  oracle_.HandshakeEnds(1, WireOracle::HandshakeEnd::kArrived, now_);
  oracle_.HandshakeBegins(2, 20'000, now_);
  EXPECT_THAT(EndTurn(), IsEmpty());
}

TEST_F(WireOracleTest, AHandshakeThatIsGivenUpMayStillCome) {
  AskAndBeReady(1);
  oracle_.HandshakeBegins(1, 15'000, now_);
  oracle_.HandshakeEnds(1, WireOracle::HandshakeEnd::kGivenUp, now_);
  EXPECT_THAT(EndTurn(), IsEmpty());
  now_ += std::chrono::milliseconds(1);
  Send(Grant(1, 20'000));
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("the budget is 30000")));
}

TEST_F(WireOracleTest, AHandshakeWithADeadHostStalls) {
  AskAndBeReady(1);
  oracle_.HandshakeBegins(1, 15'000, now_);
  now_ += std::chrono::milliseconds(400);
  Send(Grant(1, 20'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
}

TEST_F(WireOracleTest, FindsMoreThanTwiceTheShareOfASlowWorker) {
  BeSlow(3'000);
  AskAndBeReady(1);
  EXPECT_THAT(EndTurn(), IsEmpty());
  Send(Grant(1, 6'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
  Send(Grant(1, 6'000));
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("worker 0 is slow and has")));
}

TEST_F(WireOracleTest, BytesOfSlowWorkersCountAsAThird) {
  BeSlow(kBudgetBytes);
  AskAndBeReady(1);
  AskAndBeReady(1, kOther);
  AskAndBeReady(3, kOther);
  Send(Grant(1, 25'000));
  Send(Grant(1, 8'000) + Grant(3, 12'000), kOther);
  EXPECT_THAT(EndTurn(), IsEmpty());
  Send(Grant(1, 7'000), kOther);
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("the budget is 30000")));
}

TEST_F(WireOracleTest, ACallMayHaveMoreThanTheBudgetBesideSlowWorkers) {
  BeSlow(kBudgetBytes);
  AskAndBeReady(1);
  AskAndBeReady(1, kOther);
  Send(Grant(1, 25'000));
  Send(Grant(1, 100'000), kOther);
  EXPECT_THAT(EndTurn(), IsEmpty());
}

// The share was halved within the turn, which allowed larger grants to others, and has grown again.
TEST_F(WireOracleTest, AWorkerMayHaveBeenSlowWithinATurnInWhichItDelivers) {
  FillShare(12'000);
  Receive(Data(1, 4'000));
  Send(Grant(3, 25'000), kOther);
  EXPECT_THAT(EndTurn(), IsEmpty());
}

TEST_F(WireOracleTest, AWorkerThatDeliversNothingWasNotSlow) {
  FillShare(12'000);
  Send(Grant(3, 25'000), kOther);
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("the budget is 30000")));
}

TEST_F(WireOracleTest, ACallMayHaveMoreThanTheBudgetJustBeforeAReset) {
  BeSlow(kBudgetBytes);
  Send(Request(1) + Grant(1, 3'000), kOther);
  oracle_.HandshakeBegins(1, 3'000, now_);
  AskAndBeReady(1);
  AskAndBeReady(3, kOther);
  Send(Grant(1, 5'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
  now_ += std::chrono::milliseconds(1);
  // Gives up a call with early bytes, a handshake and a slow worker's call. The grant may have come before that.
  Send(Grant(3, 100'000) + Reset(1), kOther);
  oracle_.HandshakeEnds(1, WireOracle::HandshakeEnd::kGivenUp, now_);
  Send(Reset(1));
  EXPECT_THAT(EndTurn(), IsEmpty());
}

TEST_F(WireOracleTest, FindsACallWithMoreThanTheBudgetWhileAResetDrains) {
  Send(Request(1) + Grant(1, 3'000), kOther);
  AskAndBeReady(3, kOther);
  EXPECT_THAT(EndTurn(), IsEmpty());
  Send(Reset(1), kOther);
  EXPECT_THAT(EndTurn(), IsEmpty());
  now_ += std::chrono::milliseconds(1);
  Send(Grant(3, 100'000), kOther);
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("the budget is 30000")));
}

TEST_F(WireOracleTest, CountsGrantsBesideACallThatWaits) {
  AskAndBeReady(1);
  Send(Request(3) + Grant(3, 1'000));
  EXPECT_EQ(oracle_.early_beside(), 1u);
}

TEST_F(WireOracleTest, FindsARequestThatLeavesAfterItsDeadline) {
  Send(RequestOf(1, 1, now_ + std::chrono::microseconds(1)));
  EXPECT_THAT(EndTurn(), IsEmpty());
  now_ += std::chrono::microseconds(3);
  Send(RequestOf(3, 1, now_ - std::chrono::microseconds(2)));
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("2 us after its deadline")));
}

// Responses of 10 KB that take 10 ms each, of a block with one millisecond left and of one with a minute.
class LateBlocksTest : public WireOracleTest {
 protected:
  void BothAreReady(size_t class_of_other = 0, uint64_t late_block = 2) {
    SetShare(kBudgetBytes, false);
    Send(RequestOf(1, late_block, now_ + std::chrono::milliseconds(1)));
    Send(RequestOf(1, 3 - late_block, now_ + std::chrono::minutes(1), class_of_other), kOther);
    for (const WireOracle::ConnectionId connection : {kConnection, kOther}) {
      Receive(Frame(1, 4, 1, "headers") + Frame(0, 0, 1, std::string(1, '\0') + Number(10'000)), connection);
    }
    EXPECT_THAT(EndTurn(), IsEmpty());
  }
};

TEST_F(LateBlocksTest, FindsOneThatDoesNotGiveWay) {
  BothAreReady();
  Send(Grant(1, 5'000));
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("block 2, which is late, was granted bytes before one of block 1")));
}

TEST_F(LateBlocksTest, MayHaveWhatTheOthersLeave) {
  BothAreReady();
  Send(Grant(1, 5'000), kOther);
  EXPECT_THAT(EndTurn(), IsEmpty());
  Send(Grant(1, 5'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
}

// The grant left before the response came that makes the block late.
TEST_F(LateBlocksTest, IsNotLateByAResponseThatComesInTheTurn) {
  SetShare(kBudgetBytes, false);
  Send(RequestOf(1, 2, now_ + std::chrono::milliseconds(15)) + RequestOf(3, 2, now_ + std::chrono::milliseconds(15)));
  Send(RequestOf(1, 1, now_ + std::chrono::minutes(1)), kOther);
  const auto ready = [](uint32_t stream) {
    return Frame(1, 4, stream, "headers") + Frame(0, 0, stream, std::string(1, '\0') + Number(10'000));
  };
  Receive(ready(1));
  Receive(ready(1), kOther);
  EXPECT_THAT(EndTurn(), IsEmpty());
  Send(Grant(1, 5'000));
  Receive(ready(3));
  EXPECT_THAT(EndTurn(), IsEmpty());
  Send(Grant(1, 1'000));
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("block 2, which is late")));
}

TEST_F(LateBlocksTest, GivesWayWithinItsClassOnly) {
  BothAreReady(1);
  Send(Grant(1, 5'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
}

TEST_F(LateBlocksTest, MayHaveWhatAFullWorkerCannotTake) {
  BothAreReady();
  oracle_.SetLoadOf([](size_t worker) {
    return WorkerLoad{.share_bytes = kBudgetBytes, .charged_bytes = worker == 1 ? kBudgetBytes : 0};
  });
  Send(Grant(1, 5'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
}

TEST_F(LateBlocksTest, KeepsTheShareOfTheOldest) {
  BothAreReady(0, 1);
  Send(Grant(1, 5'000));
  EXPECT_THAT(EndTurn(), IsEmpty());
}

// A query of 1,000 bytes and a scan of 500,000 bytes are ready, and a third of the budget is one part.
class SmallBlocksTest : public ::testing::Test {
 protected:
  static constexpr int64_t kPartBytes = kBudgetBytes / 3;

  // Returns how many parts the scan may be granted while the query waits, at most `parts`. `others` are the bytes of
  // small blocks that are granted after each.
  int PartsOfScan(int parts, int64_t others = 0) {
    for (int i = 1; i <= parts; ++i) {
      const std::vector<TurnGrant> grants{{.block = 1, .cost_bytes = kPartBytes}, {.block = 2, .cost_bytes = others}};
      if (small_blocks_.Check({scan_, query_}, grants, {{1, 500'000}, {2, 0}, {3, 1000}}, now_).has_value())
        return i - 1;
    }
    return parts;
  }

  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  OpenResponse scan_{.id = {1, 1}, .block = 1, .deadline = TimePoint::max(), .ready = true, .rest_bytes = 500'000};
  OpenResponse query_{.id = {1, 3},
                      .block = 3,
                      .deadline = now_ + std::chrono::milliseconds(100),
                      .ready = true,
                      .rest_bytes = 1000,
                      .could_be = true,
                      .waits = true};
  SmallBlocks small_blocks_{{.budget_bytes = kBudgetBytes,
                             .part_bytes = kPartBytes,
                             .bytes_per_second = 1e6,
                             .slack = std::chrono::milliseconds(10)}};
};

TEST_F(SmallBlocksTest, WaitForOnePartOfALargeOne) {
  EXPECT_EQ(PartsOfScan(2), 1);
  EXPECT_EQ(small_blocks_.beside_larger(), 1u);
}

TEST_F(SmallBlocksTest, AndForOneWithEachBudget) {
  EXPECT_EQ(PartsOfScan(20, kBudgetBytes), 20);
}

TEST_F(SmallBlocksTest, MayWaitForBlocksOfASimilarSize) {
  scan_.rest_bytes = 5000;
  EXPECT_EQ(PartsOfScan(20), 20);
}

TEST_F(SmallBlocksTest, MayWaitOnceTheyAreLate) {
  query_.deadline = now_ + std::chrono::milliseconds(11);
  EXPECT_EQ(PartsOfScan(20), 20);
}

TEST_F(SmallBlocksTest, MayWaitForAnotherClass) {
  query_.traffic_class = 1;
  EXPECT_EQ(PartsOfScan(20), 20);
}

TEST(ClassSharesTest, AClassThatWaitsIsGrantedItsShare) {
  const OpenResponse waits{
      .id = {1, 1}, .block = 1, .ready = true, .rest_bytes = 1000, .could_be = true, .waits = true};
  // Returns whether ten parts of class 1 for each of class 0, which waits, are too many.
  const auto is_breach = [&](double weight) {
    ClassShares shares({weight, 1}, 10'000);
    bool breach = false;
    for (int i = 0; i < 100; ++i) {
      breach = breach || shares.Check({waits}, {{.traffic_class = 1, .cost_bytes = 10'000}}).has_value();
      if (i % 10 == 0)
        breach = breach || shares.Check({waits}, {{.traffic_class = 0, .cost_bytes = 10'000}}).has_value();
    }
    return breach;
  };
  EXPECT_FALSE(is_breach(0.1));
  EXPECT_TRUE(is_breach(1));
  EXPECT_TRUE(is_breach(100));
}

TEST(FreeRoomTest, FindsACallThatWaitsWhileThereIsRoom) {
  constexpr int64_t kReadyBytes = 1 << 20;
  const FreeRoom::Turn idle{.charged_bytes = 9000, .part_bytes = 5000, .expected_bytes = 10'000, .silent_calls = 4};
  const auto is_breach = [](const FreeRoom::Turn& turn, std::chrono::milliseconds time = FreeRoom::kLateness) {
    FreeRoom room(kBudgetBytes, kReadyBytes);
    const TimePoint now = TimePoint() + std::chrono::hours(1);
    return room.Check(turn, now).has_value() || room.Check(turn, now + time + std::chrono::milliseconds(1)).has_value();
  };
  EXPECT_FALSE(is_breach(idle)) << "no call waits";
  FreeRoom::Turn response = idle;
  response.response_waits = true;
  EXPECT_TRUE(is_breach(response));
  EXPECT_FALSE(is_breach(response, std::chrono::milliseconds(1))) << "a timer may be late";
  response.part_bytes = kBudgetBytes / 2;
  EXPECT_TRUE(is_breach(response));
  FreeRoom::Turn request = idle;
  request.request_waits = true;
  EXPECT_TRUE(is_breach(request));
  request.ready_bytes = kBudgetBytes;
  EXPECT_FALSE(is_breach(request)) << "its block has enough";
  request.ready_bytes = 0;
  request.silent_calls = 60;
  EXPECT_FALSE(is_breach(request)) << "headers have their third";
}

TEST_F(WireOracleTest, FindsMoreResetsThanAreAllowed) {
  for (uint32_t i = 0; i < 15; ++i) Send(Request(2 * i + 1) + Reset(2 * i + 1));
  EXPECT_THAT(EndTurn(), IsEmpty());
  EXPECT_EQ(oracle_.rationed_resets(), 1u);
  EXPECT_EQ(oracle_.rationed_until(0), now_ + std::chrono::milliseconds(200));
  EXPECT_LT(oracle_.rationed_until(1), now_);
  Send(Request(201) + Reset(201, 1));
  EXPECT_THAT(EndTurn(), IsEmpty()) << "the worker broke the protocol";
  Send(Request(301) + Reset(301));
  EXPECT_THAT(EndTurn(), ElementsAre(HasSubstr("reset more often than allowed")));
}

}  // namespace
}  // namespace sluice::testing
