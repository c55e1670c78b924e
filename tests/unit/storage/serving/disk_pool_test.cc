#include "lib/storage/serving/disk_pool.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"
#include "tests/wait_until.h"

namespace sluice {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::HasCode;
using testing::kPatience;

// A pool of two threads in a time that only the test moves.
class DiskPoolTest : public ::testing::Test {
 protected:
  ~DiskPoolTest() override {
    for (absl::Notification* hang : {&first_hang_, &second_hang_}) {
      if (!hang->HasBeenNotified()) hang->Notify();
    }
  }

  static DiskPool::Read Returns(std::string data) {
    return [data = std::move(data)] { return DiskBytes{.data = data}; };
  }
  DiskPool::Read Hangs(absl::Notification& until) {
    return [this, &until]() -> absl::StatusOr<DiskBytes> {
      ++hanging_;
      until.WaitForNotification();
      return absl::DataLossError("late");
    };
  }
  DiskPool::Done Into(absl::StatusOr<DiskBytes>& result) {
    return [this, &result](absl::StatusOr<DiskBytes> bytes) {
      absl::MutexLock lock(&mutex_);
      EXPECT_TRUE(absl::IsUnknown(result.status())) << "done is called once";
      result = std::move(bytes);
    };
  }
  bool Await(const absl::StatusOr<DiskBytes>& result) {
    const auto is_here = [&] { return !absl::IsUnknown(result.status()); };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&is_here), kPatience);
  }
  std::vector<std::string> states() {
    absl::MutexLock lock(&mutex_);
    return states_;
  }

  absl::Mutex mutex_;
  std::vector<std::string> states_;
  std::atomic<TimePoint> now_ = TimePoint() + std::chrono::hours(1);
  std::atomic<int> hanging_ = 0;
  absl::Notification first_hang_;
  absl::Notification second_hang_;
  absl::StatusOr<DiskBytes> first_ = absl::UnknownError("waits");
  absl::StatusOr<DiskBytes> second_ = absl::UnknownError("waits");
  absl::StatusOr<DiskBytes> third_ = absl::UnknownError("waits");
  DiskPool pool_{"worker-0003",
                 {.threads = 2,
                  .deadline = seconds(5),
                  .now = [this] { return now_.load(); },
                  .on_state =
                      [this](const std::string& folder, const absl::Status& state) {
                        absl::MutexLock lock(&mutex_);
                        states_.push_back(folder + (state.ok() ? " answers" : " is silent"));
                      }}};
};

TEST_F(DiskPoolTest, ReturnsWhatTheDiskReturns) {
  pool_.Submit(Returns("a"), Into(first_));
  pool_.Submit([] { return absl::NotFoundError("none"); }, Into(second_));
  ASSERT_TRUE(Await(first_) && Await(second_));
  EXPECT_EQ(first_->data, "a");
  EXPECT_THAT(second_.status(), HasCode(absl::StatusCode::kNotFound));
  pool_.Look();
  EXPECT_THAT(states(), ElementsAre());
}

TEST_F(DiskPoolTest, ASlowReadDoesNotHoldBackTheOtherThread) {
  pool_.Submit(Hangs(first_hang_), Into(first_));
  pool_.Submit(Returns("b"), Into(second_));
  ASSERT_TRUE(Await(second_));
  EXPECT_EQ(second_->data, "b");
  first_hang_.Notify();
  ASSERT_TRUE(Await(first_));
  EXPECT_THAT(first_.status(), HasCode(absl::StatusCode::kDataLoss));
}

TEST_F(DiskPoolTest, GivesUpADiskThatHangsUntilItAnswers) {
  pool_.Submit(Hangs(first_hang_), Into(first_));
  pool_.Submit(Hangs(second_hang_), Into(second_));
  pool_.Submit(Returns("c"), Into(third_));
  ASSERT_TRUE(WaitUntil([&] { return hanging_ == 2; }, kPatience));
  now_ = now_.load() + seconds(5) - std::chrono::nanoseconds(1);
  pool_.Look();
  EXPECT_THAT(states(), ElementsAre());
  now_ = now_.load() + std::chrono::nanoseconds(1);
  pool_.Look();
  for (const auto* result : {&first_, &second_, &third_}) {
    EXPECT_THAT(result->status(), HasCode(absl::StatusCode::kUnavailable));
    EXPECT_EQ(result->status().message(), "the disk of worker-0003 has not completed a read for 5s");
  }
  absl::StatusOr<DiskBytes> refused = absl::UnknownError("waits");
  pool_.Submit(Returns("d"), Into(refused));
  EXPECT_THAT(refused.status(), HasCode(absl::StatusCode::kUnavailable)) << "at once";
  EXPECT_THAT(states(), ElementsAre("worker-0003 is silent"));

  first_hang_.Notify();
  second_hang_.Notify();
  ASSERT_TRUE(WaitUntil([&] { return states().size() == 2; }, kPatience));
  EXPECT_THAT(states(), ElementsAre("worker-0003 is silent", "worker-0003 answers"));
  absl::StatusOr<DiskBytes> back = absl::UnknownError("waits");
  pool_.Submit(Returns("e"), Into(back));
  ASSERT_TRUE(Await(back));
  EXPECT_EQ(back->data, "e");
}

TEST_F(DiskPoolTest, WaitsForAllReadsThatItGaveUp) {
  pool_.Submit(Hangs(first_hang_), Into(first_));
  pool_.Submit(Hangs(second_hang_), Into(second_));
  ASSERT_TRUE(WaitUntil([&] { return hanging_ == 2; }, kPatience));
  now_ = now_.load() + seconds(5);
  pool_.Look();
  first_hang_.Notify();
  pool_.Submit(Returns("c"), Into(third_));
  EXPECT_THAT(third_.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(states(), ElementsAre("worker-0003 is silent"));
}

TEST_F(DiskPoolTest, ReadsThatWaitTheirTurnAreNotLate) {
  pool_.Submit(Hangs(first_hang_), Into(first_));
  pool_.Submit(Hangs(second_hang_), Into(second_));
  pool_.Submit(Returns("c"), Into(third_));
  ASSERT_TRUE(WaitUntil([&] { return hanging_ == 2; }, kPatience));
  now_ = now_.load() + seconds(4);
  first_hang_.Notify();
  second_hang_.Notify();
  for (auto* read : {&first_, &second_, &third_}) ASSERT_TRUE(Await(*read));
  now_ = now_.load() + seconds(4);
  pool_.Look();
  EXPECT_EQ(third_->data, "c");
  EXPECT_THAT(states(), ElementsAre());
}

}  // namespace
}  // namespace sluice
