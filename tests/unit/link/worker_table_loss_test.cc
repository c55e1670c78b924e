#include "lib/link/worker_table.h"
#include "tests/unit/link/worker_table_fixture.h"

// The silences and out-of-order packets that count as losses.
namespace sluice {
namespace {

using absl::Milliseconds;
using absl::Seconds;
using testing::FakeConnection;

class WorkerTableLossTest : public testing::WorkerTableTest {
 protected:
  static constexpr absl::Duration kSilence = Milliseconds(90);

  void ExpectNothingLost(const LinkSight& sight) {
    EXPECT_EQ(sight.losses_out_of_order, 0);
    EXPECT_EQ(sight.losses_silent, 0);
    EXPECT_EQ(sight.losses_paused, 0);
    EXPECT_EQ(sight.rto_waits, 0);
  }
  void ExpectSilentLoss(const LinkSight& sight) {
    EXPECT_EQ(sight.losses_out_of_order, 0);
    EXPECT_EQ(sight.losses_silent, 1);
    EXPECT_EQ(sight.losses_paused, 0);
    EXPECT_EQ(sight.rto_waits, 1);
  }
  void ExpectPause(const LinkSight& sight) {
    EXPECT_EQ(sight.losses_out_of_order, 0);
    EXPECT_EQ(sight.losses_silent, 0);
    EXPECT_EQ(sight.losses_paused, 1);
    EXPECT_EQ(sight.rto_waits, 1);
    EXPECT_EQ(sight.lossy_workers, 0) << "it may be the worker";
  }
  // The worker has acknowledged, is silent for the length of a timeout, and sends again.
  void ExpectPauseFrom(TimePoint time) {
    while (now_ < time + WorkerLoad::kPause - std::chrono::milliseconds(90)) ExpectNothingLost(LookAfter(kSilence));
    now_ = time + WorkerLoad::kPause;
    ExpectNothingLost(Look());
    Receive(1);
    ExpectPause(Look());
  }
  // The sent bytes are not acknowledged. The worker is silent, and then sends again.
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
  ReceiveOutOfOrder(1);  // seen after the end of the response
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

TEST_F(WorkerTableLossTest, SilenceAfterAPartOfTheAnswerIsAPauseOfTheWorkerOrALoss) {
  Ask();
  ReceivePart();
  ExpectPauseFrom(now_);
  EXPECT_EQ(Summary().losses, 1);
  EXPECT_EQ(Summary().rtos, 1);
}

// A TCP timeout is longer; a container that has used up its CPU quota is stopped for about this time.
TEST_F(WorkerTableLossTest, SilenceThatIsShorterThanATimeoutIsNoLoss) {
  Ask();
  ReceivePart();
  ExpectNothingLost(LookAfter(Milliseconds(100)));
  Pass(Milliseconds(89));
  Receive(1);
  ExpectNothingLost(Look());
}

TEST_F(WorkerTableLossTest, ASilenceThatTheScheduleSeesAfterALookIsCountedOnce) {
  Ask(/*acknowledged=*/false);
  Owe(kAnswerBytes);
  ExpectNothingLost(LookAfter(Milliseconds(200)));
  ReceiveUnread(connection_, kPart);
  ExpectSilentLoss(Look());
  Read(connection_, kPart);
  EXPECT_EQ(LoadOf(connection_).pauses, 1);
  ExpectNothingLost(LookAfter(Milliseconds(10)));
  End();
  ExpectNothingLost(LookAfter(Seconds(1)));
  // The same holds for a worker that has acknowledged.
  Ask();
  Owe(kAnswerBytes);
  Pass(Milliseconds(200));
  ReceiveUnread(connection_, kPart);
  ExpectNothingLost(Look());
  Read(connection_, kPart);
  ExpectPause(Look());
}

TEST_F(WorkerTableLossTest, AGrantOverALongWayIsNoPause) {
  connection_.socket.info.smoothed_rtt = Milliseconds(200);
  Ask(/*acknowledged=*/false);
  ExpectNothingLost(LookAfter(Milliseconds(200)));
  Receive(kPart);
  ExpectNothingLost(Look());
  Owe(kAnswerBytes);
  ExpectNothingLost(LookAfter(Milliseconds(200)));
  Receive(kPart);
  ExpectNothingLost(Look());
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

TEST_F(WorkerTableLossTest, AWorkerOfWhichOnlyHeadersAndPingsHaveComeHasLostNothing) {
  Ask();
  Receive(kPart);
  ExpectNothingLost(LookAfter(Seconds(1)));
  Owe(kAnswerBytes);
  ExpectPauseFrom(now_);
}

TEST_F(WorkerTableLossTest, AnAnswerWhoseRestIsNotGrantedYetHasLostNothing) {
  Ask();
  Receive(kPart);
  for (int look = 0; look < 5; ++look) ExpectNothingLost(LookAfter(kSilence));
  Owe(kAnswerBytes);
  ExpectNothingLost(LookAfter(kSilence - Milliseconds(1)));
  Receive(kPart);
  ExpectNothingLost(Look());
  Answer();
  ExpectNothingLost(LookAfter(kSilence));
}

TEST_F(WorkerTableLossTest, SilenceAfterTheRestIsGrantedIsALoss) {
  Ask();
  Receive(kPart);
  ExpectNothingLost(LookAfter(kSilence));
  Owe(kAnswerBytes);
  ExpectPauseFrom(now_);
}

TEST_F(WorkerTableLossTest, StreamsMayPauseBetweenMessages) {
  Ask();
  for (int message = 0; message < 5; ++message) {
    Owe(kAnswerBytes);
    Receive(kAnswerBytes);
    ExpectNothingLost(LookAfter(Seconds(1)));
  }
}

TEST_F(WorkerTableLossTest, AStreamMayPauseAfterAUnaryAnswer) {
  Ask();
  Receive(10'000);
  Ask();
  Answer();
  ExpectNothingLost(LookAfter(kSilence));
  Receive(100);
  ExpectNothingLost(Look());
}

TEST_F(WorkerTableLossTest, NothingIsLostWhereNoAnswerIsAskedFor) {
  Receive(kAnswerBytes);
  connection_.socket.info.unacknowledged_packets = 1;
  ExpectNothingLost(LookAfter(Seconds(1)));
  Ask();
  ReceivePart();
  End();  // as at a deadline
  ExpectNothingLost(LookAfter(Seconds(1)));
}

TEST_F(WorkerTableLossTest, AConnectionThatWasSilentBeforeTheRequestIsNotSilentYet) {
  Pass(Seconds(10));
  Ask(/*acknowledged=*/false);
  ExpectNothingLost(LookAfter(kSilence - Milliseconds(1)));
}

TEST_F(WorkerTableLossTest, AnAnswerThatIsStillComingIsNotLost) {
  Ask();
  Owe(20 * 1448);
  for (int packet = 0; packet < 20; ++packet) {
    Receive(1448);
    ExpectNothingLost(LookAfter(kSilence - Milliseconds(1)));
  }
}

// A request that has just left cannot be acknowledged yet, and shows nothing about the request before it.
TEST_F(WorkerTableLossTest, WhatWasSentALittleWhileAgoNeedNotBeAcknowledgedYet) {
  Ask(/*acknowledged=*/true);
  Pass(Milliseconds(100));
  connection_.sent_at = now_;  // a ping
  connection_.socket.info.unacknowledged_packets = 1;
  ExpectNothingLost(LookAfter(Milliseconds(79)));
  ExpectSilentLossAfter(Milliseconds(1));  // up to one kernel tick less than 90 ms
}

TEST_F(WorkerTableLossTest, AnAnswerThatWaitsTwiceIsOneLoss) {
  Ask(/*acknowledged=*/false);
  for (int look = 0; look < 10; ++look) ExpectNothingLost(LookAfter(Milliseconds(100)));
  // The response was retransmitted, and its second half was lost again.
  Receive(kAnswerBytes / 2);
  ExpectSilentLoss(Look());
  connection_.socket.info.unacknowledged_packets = 1;
  for (int look = 0; look < 10; ++look) ExpectNothingLost(LookAfter(Milliseconds(100)));
  Receive(kAnswerBytes / 2);
  const LinkSight sight = Look();
  EXPECT_EQ(sight.losses_silent, 0);
  EXPECT_EQ(sight.rto_waits, 1);
  EXPECT_EQ(Summary().losses, 1);
  EXPECT_EQ(Summary().rtos, 2);
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
  ReceivePart();
  ReceiveOutOfOrder(1);
  EXPECT_EQ(Look().losses_out_of_order, 1);
  ExpectNothingLost(LookAfter(Milliseconds(200)));
  Receive(1);
  LinkSight sight = Look();
  EXPECT_EQ(sight.losses_paused, 0);
  EXPECT_EQ(sight.rto_waits, 1);
  EXPECT_EQ(Summary().losses, 1);
  EXPECT_EQ(Summary().rtos, 1);
  // The reverse: an out-of-order packet ends the silence.
  Answer();
  Ask(/*acknowledged=*/false);
  ExpectNothingLost(LookAfter(kSilence));
  ReceiveOutOfOrder(1);
  sight = Look();
  EXPECT_EQ(sight.out_of_order_packets, 1u);
  ExpectSilentLoss(sight);
  EXPECT_EQ(Summary().losses, 2);
}

// A dead host looks like a host whose packets are lost, but never sends again.
TEST_F(WorkerTableLossTest, AHostThatIsDeadIsNoCongestion) {
  table_.OnConnected(worker_, now_);
  Ask(/*acknowledged=*/false);
  for (int look = 0; look < 100; ++look) ExpectNothingLost(LookAfter(Milliseconds(100)));
  End();
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

// The loss belongs to the response that waited, not to the current one.
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
  Ask(other_connection, true);
  ExpectSilentLossAfter(Milliseconds(100));
  other_connection.socket.info.out_of_order_packets = 1;
  EXPECT_EQ(Look().losses_out_of_order, 1);
  EXPECT_EQ(Summary(worker_).losses, 1);
  EXPECT_EQ(Summary(other).losses, 1);
  EXPECT_EQ(Summary(other).rtos, 0);
}

}  // namespace
}  // namespace sluice
