#include "lib/telemetry/worker_table.h"
#include "tests/telemetry/worker_table_fixture.h"

// Which silences and which packets out of order are losses.
namespace sluice {
namespace {

using absl::Milliseconds;
using absl::Seconds;
using testing::FakeConnection;

class WorkerTableLossTest : public testing::WorkerTableTest {
 protected:
  static constexpr absl::Duration kSilence = Milliseconds(90);
  static constexpr int64_t kPart = 1000;

  void ExpectNothingLost(const LinkSight& sight) {
    EXPECT_EQ(sight.losses_out_of_order, 0);
    EXPECT_EQ(sight.losses_silent, 0);
    EXPECT_EQ(sight.rto_waits, 0);
  }
  void ExpectSilentLoss(const LinkSight& sight) {
    EXPECT_EQ(sight.losses_out_of_order, 0);
    EXPECT_EQ(sight.losses_silent, 1);
    EXPECT_EQ(sight.rto_waits, 1);
  }
  // The worker is silent, and is heard again after that.
  void ExpectSilentLossAfter(absl::Duration silence) {
    ExpectNothingLost(LookAfter(silence));
    Receive(1);
    ExpectSilentLoss(Look());
  }
};

TEST_F(WorkerTableLossTest, PacketsOutOfOrderAreOneLossOfTheirAnswerHoweverMany) {
  Ask();
  ReceiveOutOfOrder(3);
  LinkSight sight = Look();
  EXPECT_EQ(sight.out_of_order_packets, 3u);
  EXPECT_EQ(sight.losses_out_of_order, 1);
  EXPECT_EQ(sight.rto_waits, 0);
  ReceiveOutOfOrder(2);
  sight = LookAfter(Milliseconds(100));
  EXPECT_EQ(sight.out_of_order_packets, 2u);
  EXPECT_EQ(sight.losses_out_of_order, 0);
  Answer();
  ReceiveOutOfOrder(1);  // seen after its end
  sight = LookAfter(Milliseconds(100));
  EXPECT_EQ(sight.out_of_order_packets, 1u);
  EXPECT_EQ(sight.losses_out_of_order, 0);
  EXPECT_EQ(Summary().losses, 1);
  EXPECT_EQ(Summary().rtos, 0);
}

TEST_F(WorkerTableLossTest, PacketsOutOfOrderOfTheNextAnswerAreALossAnew) {
  for (int answer = 1; answer <= 3; ++answer) {
    Ask();
    ReceiveOutOfOrder(1);
    EXPECT_EQ(LookAfter(Milliseconds(100)).losses_out_of_order, 1);
    Answer();
    EXPECT_EQ(Summary().losses, answer);
  }
}

TEST_F(WorkerTableLossTest, PacketsOutOfOrderOfAnAnswerThatHasEndedSinceAreALoss) {
  Ask();
  ReceiveOutOfOrder(1);
  Answer();
  EXPECT_EQ(Look().losses_out_of_order, 1);
  Ask();
  Answer();
  EXPECT_EQ(Look().losses_out_of_order, 0);
}

TEST_F(WorkerTableLossTest, PacketsOutOfOrderOnTwoConnectionsOfAWorkerAreOneLoss) {
  FakeConnection& second = Connect(worker_);
  Ask();
  ReceiveOutOfOrder(1);
  second.socket.info.out_of_order_packets = 4;
  const LinkSight sight = Look();
  EXPECT_EQ(sight.out_of_order_packets, 5u);
  EXPECT_EQ(sight.losses_out_of_order, 1);
}

TEST_F(WorkerTableLossTest, SilenceAfterAPartOfTheAnswerIsALoss) {
  Ask();
  Receive(kPart);
  ExpectNothingLost(LookAfter(kSilence - Milliseconds(1)));
  ExpectSilentLossAfter(Milliseconds(1));
  EXPECT_EQ(Summary().losses, 1);
  EXPECT_EQ(Summary().rtos, 1);
}

TEST_F(WorkerTableLossTest, SilenceAfterARequestThatIsNotAcknowledgedIsALoss) {
  Ask(/*acknowledged=*/false);
  ExpectNothingLost(LookAfter(kSilence - Milliseconds(1)));
  ExpectSilentLossAfter(Milliseconds(1));
}

TEST_F(WorkerTableLossTest, AWorkerThatThinksLongAndAcknowledgesTheRequestHasLostNothing) {
  Ask(/*acknowledged=*/true);
  for (int look = 0; look < 50; ++look) ExpectNothingLost(LookAfter(Milliseconds(100)));
  Answer();
  ExpectNothingLost(Look());
  EXPECT_EQ(Summary().losses, 0);
}

TEST_F(WorkerTableLossTest, WhatIsNoLargerThanAPingIsNoPartOfAnAnswer) {
  Ask();
  Receive(kPart - 1);
  ExpectNothingLost(LookAfter(Seconds(1)));
  Pass(Milliseconds(1));
  Receive(1);
  ExpectSilentLossAfter(kSilence);
}

TEST_F(WorkerTableLossTest, PartsThatCameBetweenSeveralLooksAddUp) {
  Ask();
  for (int piece = 0; piece < 4; ++piece) {
    Receive(kPart / 4);
    ExpectNothingLost(LookAfter(Milliseconds(50)));
  }
  ExpectSilentLossAfter(Milliseconds(50));
}

TEST_F(WorkerTableLossTest, AnAnswerThatHasComeInFullIsNoPartOfTheNext) {
  for (int answer = 0; answer < 20; ++answer) {
    Ask();
    ExpectNothingLost(LookAfter(Milliseconds(10)));
    Answer();
    Ask();
    ExpectNothingLost(LookAfter(Seconds(1)));
    Answer();
  }
}

TEST_F(WorkerTableLossTest, WhatCameOfAnAnswerThatWasGivenUpIsNoPartOfTheNext) {
  Ask();
  Receive(kAnswerBytes / 2);
  End(0);
  ExpectNothingLost(LookAfter(Milliseconds(10)));
  Ask();
  ExpectNothingLost(LookAfter(Seconds(1)));
}

// What is around an answer is not known to the byte; that must not add up while there is always one under way.
TEST_F(WorkerTableLossTest, APartIsSeenAfterManyAnswersWithoutAPause) {
  Ask();
  for (int answer = 0; answer < 100; ++answer) {
    Ask();
    Answer();
    ExpectNothingLost(LookAfter(Milliseconds(10)));
  }
  Receive(kPart);
  ExpectSilentLossAfter(kSilence);
}

TEST_F(WorkerTableLossTest, AnAnswerWhoseRestIsNotGrantedYetHasLostNothing) {
  Ask();
  Receive(kPart);
  table_.OnPaused(worker_);
  for (int look = 0; look < 5; ++look) ExpectNothingLost(LookAfter(kSilence));
  table_.OnResumed(worker_, now_);
  ExpectNothingLost(LookAfter(kSilence - Milliseconds(1)));
  Receive(kPart);
  ExpectNothingLost(Look());
  Answer();
  ExpectNothingLost(LookAfter(kSilence));
}

TEST_F(WorkerTableLossTest, SilenceAfterTheRestIsGrantedIsALoss) {
  Ask();
  Receive(kPart);
  table_.OnPaused(worker_);
  ExpectNothingLost(LookAfter(kSilence));
  table_.OnResumed(worker_, now_);
  ExpectSilentLossAfter(kSilence);
}

TEST_F(WorkerTableLossTest, StreamsMayPauseAfterAPart) {
  AskForParts(/*acknowledged=*/true);
  for (int part = 0; part < 5; ++part) {
    Receive(kAnswerBytes);
    ExpectNothingLost(LookAfter(Seconds(1)));
  }
}

TEST_F(WorkerTableLossTest, StreamsLoseWhatIsNotAcknowledgedLikeAllOthers) {
  AskForParts(/*acknowledged=*/false);
  ExpectSilentLossAfter(kSilence);
}

TEST_F(WorkerTableLossTest, AUnaryAnswerAfterAStreamIsJudgedByPartsAgain) {
  AskForParts(/*acknowledged=*/true);
  Answer();
  Look();
  Ask();
  Receive(kPart);
  ExpectSilentLossAfter(kSilence);
}

TEST_F(WorkerTableLossTest, NothingIsLostWhereNoAnswerIsAskedFor) {
  Receive(kAnswerBytes);
  connection_.socket.info.unacknowledged_packets = 1;
  ExpectNothingLost(LookAfter(Seconds(1)));
  Ask();
  Receive(kPart);
  End(0);  // as by a deadline
  ExpectNothingLost(LookAfter(Seconds(1)));
}

TEST_F(WorkerTableLossTest, AConnectionThatWasSilentBeforeTheRequestIsNotSilentYet) {
  Pass(Seconds(10));
  Ask(/*acknowledged=*/false);
  ExpectNothingLost(LookAfter(kSilence - Milliseconds(1)));
}

TEST_F(WorkerTableLossTest, AnAnswerThatIsStillComingIsNotLost) {
  Ask();
  for (int packet = 0; packet < 20; ++packet) {
    Receive(1448);
    ExpectNothingLost(LookAfter(kSilence - Milliseconds(1)));
  }
}

TEST_F(WorkerTableLossTest, TheTimeCountsFromTheLastAnswerThatEnded) {
  Ask();
  Ask(/*acknowledged=*/false);
  Pass(Milliseconds(60));
  End(0);  // its bytes had come long before
  ExpectNothingLost(LookAfter(kSilence - Milliseconds(1)));
  ExpectSilentLossAfter(Milliseconds(1));
}

// A request that is not acknowledged yet since it left only now says nothing of one before it.
TEST_F(WorkerTableLossTest, WhatWasSentALittleWhileAgoNeedNotBeAcknowledgedYet) {
  Ask(/*acknowledged=*/true);
  Pass(Milliseconds(100));
  connection_.sent_at = now_;  // a ping
  connection_.socket.info.unacknowledged_packets = 1;
  ExpectNothingLost(LookAfter(Milliseconds(79)));
  ExpectSilentLossAfter(Milliseconds(1));  // up to a tick of the kernel short of 90 ms
}

TEST_F(WorkerTableLossTest, AnAnswerThatWaitsIsOneLossHoweverOftenItIsSeenToWait) {
  Ask(/*acknowledged=*/false);
  for (int look = 0; look < 10; ++look) ExpectNothingLost(LookAfter(Milliseconds(100)));
  // Retransmitted, and its second half lost again.
  Receive(kAnswerBytes / 2);
  ExpectSilentLoss(Look());
  for (int look = 0; look < 10; ++look) ExpectNothingLost(LookAfter(Milliseconds(100)));
  Receive(kAnswerBytes / 2);
  ExpectNothingLost(Look());
  EXPECT_EQ(Summary().losses, 1);
  EXPECT_EQ(Summary().rtos, 1);
}

TEST_F(WorkerTableLossTest, TheNextAnswerThatWaitsIsALossAnew) {
  for (int answer = 1; answer <= 5; ++answer) {
    Ask(/*acknowledged=*/false);
    ExpectNothingLost(LookAfter(Milliseconds(100)));
    Answer();
    ExpectSilentLoss(LookAfter(Milliseconds(100)));
    EXPECT_EQ(Summary().losses, answer);
    EXPECT_EQ(Summary().rtos, answer);
  }
}

TEST_F(WorkerTableLossTest, TwoAnswersThatWaitAreTwoLossesOneAfterTheOther) {
  Ask(/*acknowledged=*/false);
  Ask(/*acknowledged=*/false);
  ExpectNothingLost(LookAfter(kSilence));
  Answer();
  connection_.socket.info.unacknowledged_packets = 1;
  connection_.sent_at = now_;
  ExpectSilentLoss(LookAfter(kSilence));
  Answer();
  ExpectSilentLoss(LookAfter(kSilence));
  EXPECT_EQ(Summary().losses, 2);
}

TEST_F(WorkerTableLossTest, PacketsOutOfOrderAndSilenceOfOneAnswerAreOneLossAndOneTimeout) {
  Ask();
  Receive(kPart);
  ReceiveOutOfOrder(1);
  EXPECT_EQ(Look().losses_out_of_order, 1);
  ExpectNothingLost(LookAfter(kSilence));
  Receive(1);
  LinkSight sight = Look();
  EXPECT_EQ(sight.losses_silent, 0);
  EXPECT_EQ(sight.rto_waits, 1);
  EXPECT_EQ(Summary().losses, 1);
  EXPECT_EQ(Summary().rtos, 1);
  // The other way round: what is out of order is what is heard again.
  Answer();
  Ask(/*acknowledged=*/false);
  ExpectNothingLost(LookAfter(kSilence));
  ReceiveOutOfOrder(1);
  sight = Look();
  EXPECT_EQ(sight.out_of_order_packets, 1u);
  ExpectSilentLoss(sight);
  EXPECT_EQ(Summary().losses, 2);
}

// A host that is dead looks like one whose packets are lost, but for never being heard again.
TEST_F(WorkerTableLossTest, AHostThatIsDeadIsNoCongestion) {
  table_.OnConnected(worker_, now_);
  Ask(/*acknowledged=*/false);
  for (int look = 0; look < 100; ++look) ExpectNothingLost(LookAfter(Milliseconds(100)));
  End(0);
  Close(connection_);
  table_.OnLost(worker_, now_);
  ExpectNothingLost(LookAfter(Milliseconds(100)));
  FakeConnection& second = Connect(worker_);
  table_.OnConnected(worker_, now_);
  Receive(second, 400);
  ExpectNothingLost(LookAfter(Milliseconds(100)));
  EXPECT_EQ(Summary().losses, 0);
  EXPECT_EQ(Summary().rtos, 0);
}

// Of the answer that waited, which is not the one that is under way.
TEST_F(WorkerTableLossTest, SilenceThatIsHeardOfDuringTheNextAnswerIsNoLossOfThat) {
  Ask(/*acknowledged=*/false);
  ExpectNothingLost(LookAfter(kSilence));
  Answer();
  Ask(/*acknowledged=*/true);
  ExpectSilentLoss(Look());
  ReceiveOutOfOrder(1);
  EXPECT_EQ(Look().losses_out_of_order, 1);
  EXPECT_EQ(Summary().losses, 2);
  EXPECT_EQ(Summary().rtos, 1);
}

TEST_F(WorkerTableLossTest, EachWorkerIsJudgedByItself) {
  const size_t other = table_.Add("worker-2:20000");
  FakeConnection& other_connection = Connect(other);
  Look();
  Ask(/*acknowledged=*/false);
  table_.OnAsked(other, now_, false);
  ExpectSilentLossAfter(Milliseconds(100));
  other_connection.socket.info.out_of_order_packets = 1;
  EXPECT_EQ(Look().losses_out_of_order, 1);
  EXPECT_EQ(Summary(worker_).losses, 1);
  EXPECT_EQ(Summary(other).losses, 1);
  EXPECT_EQ(Summary(other).rtos, 0);
}

// A look takes time: what it is told was true when it began. An answer that has ended since is not in it in full.
TEST_F(WorkerTableLossTest, AnAnswerThatEndsDuringALookIsNoPartOfTheNext) {
  Ask();
  Pass(Milliseconds(10));
  const TimePoint began = now_;
  const std::vector<WorkerTable::Socket> sockets = Sockets();
  Pass(Milliseconds(1));
  Answer();
  ExpectNothingLost(table_.Look(began, sockets));
  Ask(/*acknowledged=*/true);
  ExpectNothingLost(LookAfter(Milliseconds(100)));
  ExpectNothingLost(LookAfter(Milliseconds(100)));
  // And the same where the next request leaves before the look is told.
  Answer();
  Ask();
  Pass(Milliseconds(10));
  const TimePoint again = now_;
  const std::vector<WorkerTable::Socket> seen_again = Sockets();
  Pass(Milliseconds(1));
  Answer();
  Ask(/*acknowledged=*/true);
  ExpectNothingLost(table_.Look(again, seen_again));
  ExpectNothingLost(LookAfter(Milliseconds(100)));
  ExpectNothingLost(LookAfter(Milliseconds(100)));
}

}  // namespace
}  // namespace sluice
