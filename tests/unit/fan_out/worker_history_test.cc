#include "lib/fan_out/worker_history.h"

#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WorkerHistoryTest : public ::testing::Test {
 protected:
  // An attempt that was ready after `time_to_ready`, and succeeded.
  void Answer(size_t worker, absl::Duration time_to_ready) {
    history_.OnReady(now_, worker, time_to_ready);
    history_.OnResponse(now_, worker);
  }

  // Advances the time until the worker's pause is over. Returns the length of the pause in seconds.
  int64_t WaitUntilGood(size_t worker) {
    int64_t waited = 0;
    for (; history_.Bad(now_, worker); ++waited) now_ += seconds(1);
    return waited;
  }

  void SetUp() override {
    for (size_t worker = 0; worker < 4; ++worker) history_.Use(worker, 0);
  }

  WorkerHistory history_;
  TimePoint now_ = TimePoint() + std::chrono::hours(1);
};

TEST_F(WorkerHistoryTest, KnowsNothingAtFirstAndKeepsTheOrder) {
  EXPECT_EQ(history_.TimeToReady(0), std::nullopt);
  EXPECT_THAT(history_.Order(now_, {2, 0, 3, 1}), ElementsAre(2, 0, 3, 1));
  EXPECT_THAT(history_.Order(now_, {}), IsEmpty());
}

TEST_F(WorkerHistoryTest, AnotherWorkerInTheSameRowHasNoHistory) {
  Answer(1, absl::Milliseconds(8));
  history_.OnFailed(now_, 1);
  history_.Use(1, 0);
  EXPECT_TRUE(history_.Bad(now_, 1));
  history_.Use(1, 1);
  EXPECT_FALSE(history_.Bad(now_, 1));
  EXPECT_EQ(history_.TimeToReady(1), std::nullopt);
  Answer(1, absl::Milliseconds(9));
  history_.Use(7, 3);
  history_.Use(1, 1);
  EXPECT_EQ(history_.TimeToReady(1), absl::Milliseconds(9));
  EXPECT_EQ(history_.TimeToReady(7), std::nullopt);
}

TEST_F(WorkerHistoryTest, TheMeanFollowsAChange) {
  Answer(0, absl::Milliseconds(8));
  EXPECT_EQ(history_.TimeToReady(0), absl::Milliseconds(8));
  Answer(0, absl::Milliseconds(16));
  EXPECT_EQ(history_.TimeToReady(0), absl::Milliseconds(9));
  for (int i = 0; i < 50; ++i) Answer(0, absl::Milliseconds(100));
  EXPECT_GT(*history_.TimeToReady(0), absl::Milliseconds(99));
}

TEST_F(WorkerHistoryTest, ThePrimaryStaysFirstAndTheOthersComeByTheirTime) {
  Answer(0, absl::Milliseconds(50));
  Answer(1, absl::Milliseconds(30));
  Answer(2, absl::Milliseconds(10));
  EXPECT_THAT(history_.Order(now_, {0, 1, 2}), ElementsAre(0, 2, 1));
}

TEST_F(WorkerHistoryTest, WhatIsUnknownCountsAsTheMean) {
  Answer(1, absl::Milliseconds(30));
  Answer(2, absl::Milliseconds(10));
  EXPECT_THAT(history_.Order(now_, {0, 1, 3, 2}), ElementsAre(0, 2, 3, 1));
}

TEST_F(WorkerHistoryTest, ABadOneComesLastAlsoWhereItIsThePrimary) {
  Answer(0, absl::Milliseconds(1));
  history_.OnFailed(now_, 0);
  EXPECT_TRUE(history_.Bad(now_, 0));
  EXPECT_THAT(history_.Order(now_, {0, 1, 2}), ElementsAre(1, 2, 0));
}

TEST_F(WorkerHistoryTest, OfBadOnesTheOneWhosePauseEndsFirstComesFirst) {
  history_.OnFailed(now_, 0);
  now_ += milliseconds(100);
  history_.OnFailed(now_, 2);
  EXPECT_THAT(history_.Order(now_, {2, 0, 3}), ElementsAre(3, 0, 2));
  EXPECT_THAT(history_.Order(now_, {2, 0}), ElementsAre(0, 2));
}

TEST_F(WorkerHistoryTest, AResponseMakesItGoodAtOnce) {
  history_.OnFailed(now_, 0);
  history_.OnResponse(now_, 0);
  EXPECT_FALSE(history_.Bad(now_, 0));
  EXPECT_THAT(history_.Order(now_, {0, 1}), ElementsAre(0, 1));
}

TEST_F(WorkerHistoryTest, EjectedWorkersComeBehindBadOnes) {
  history_.OnFailed(now_, 1);
  const auto is_ejected = [](size_t worker) { return worker == 0 || worker == 3; };
  EXPECT_THAT(history_.Order(now_, {0, 1, 2, 3}, is_ejected), ElementsAre(2, 1, 0, 3));
  EXPECT_THAT(history_.Order(now_, {3, 0}, is_ejected), ElementsAre(3, 0)) << "there is no other";
  now_ += milliseconds(1000);
  EXPECT_THAT(history_.Order(now_, {0, 1}, is_ejected), ElementsAre(1, 0)) << "the trial is the one that is first";
  EXPECT_THAT(history_.Order(now_, {0, 1}, is_ejected), ElementsAre(1, 0)) << "even if it is bad";
}

TEST_F(WorkerHistoryTest, AfterThePauseOneAttemptTriesIt) {
  history_.OnFailed(now_, 0);
  now_ += milliseconds(999);
  EXPECT_THAT(history_.Order(now_, {0, 1}), ElementsAre(1, 0));
  now_ += milliseconds(1);
  EXPECT_THAT(history_.Order(now_, {0, 1}), ElementsAre(0, 1)) << "the trial";
  EXPECT_THAT(history_.Order(now_, {0, 1}), ElementsAre(1, 0)) << "nothing is known of it yet";
  history_.OnResponse(now_, 0);
  EXPECT_THAT(history_.Order(now_, {0, 1}), ElementsAre(0, 1));
  EXPECT_THAT(history_.Order(now_, {0, 1}), ElementsAre(0, 1));
}

TEST_F(WorkerHistoryTest, ATrialThatTellsNothingIsFollowedByAnother) {
  history_.OnFailed(now_, 0);
  EXPECT_EQ(WaitUntilGood(0), 1);
  EXPECT_THAT(history_.Order(now_, {0, 1}), ElementsAre(0, 1));
  EXPECT_EQ(WaitUntilGood(0), 1) << "it was cancelled; the pause is the same";
  EXPECT_THAT(history_.Order(now_, {0, 1}), ElementsAre(0, 1));
}

TEST_F(WorkerHistoryTest, AReplicaIsOnTrialOnlyWhereItComesFirst) {
  history_.OnFailed(now_, 1);
  WaitUntilGood(1);
  EXPECT_THAT(history_.Order(now_, {0, 1, 2}), ElementsAre(0, 1, 2));
  EXPECT_FALSE(history_.Bad(now_, 1)) << "perhaps nobody asks it";
  history_.OnFailed(now_, 0);
  EXPECT_THAT(history_.Order(now_, {0, 1, 2}), ElementsAre(1, 2, 0));
  EXPECT_TRUE(history_.Bad(now_, 1));
}

TEST_F(WorkerHistoryTest, ThePauseDoublesWithEachTrialThatFails) {
  std::vector<int64_t> pauses;
  for (int i = 0; i < 7; ++i) {
    history_.OnFailed(now_, 0);
    pauses.push_back(WaitUntilGood(0));
    history_.Order(now_, {0, 1});
  }
  EXPECT_THAT(pauses, ElementsAre(1, 2, 4, 8, 16, 30, 30));
  history_.OnResponse(now_, 0);
  history_.OnFailed(now_, 0);
  EXPECT_EQ(WaitUntilGood(0), 1) << "a response has made it good";
}

TEST_F(WorkerHistoryTest, WhatFailsTogetherIsOneFailure) {
  for (int i = 0; i < 64; ++i) history_.OnFailed(now_, 0);
  now_ += milliseconds(500);
  history_.OnFailed(now_, 0);
  now_ += milliseconds(500);
  EXPECT_FALSE(history_.Bad(now_, 0));
}

TEST_F(WorkerHistoryTest, GrowsWithItsWorkers) {
  Answer(3, absl::Milliseconds(1));
  history_.OnFailed(now_, 2);
  history_.Use(5, 0);
  EXPECT_EQ(history_.TimeToReady(3), absl::Milliseconds(1));
  EXPECT_TRUE(history_.Bad(now_, 2));
  EXPECT_THAT(history_.Order(now_, {2, 5, 4}), ElementsAre(5, 4, 2));
}

}  // namespace
}  // namespace sluice
