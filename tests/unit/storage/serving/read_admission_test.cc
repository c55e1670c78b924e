#include "lib/storage/serving/read_admission.h"

#include <chrono>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"

namespace sluice {
namespace {

using std::chrono::seconds;
using testing::HasCode;

constexpr TimePoint kStart = TimePoint() + std::chrono::hours(1);

class ReadAdmissionTest : public ::testing::Test {
 protected:
  std::unique_ptr<ReadAdmission::Read> Make(int& ended, TimePoint now = kStart) {
    return std::make_unique<ReadAdmission::Read>(
        admission_, [&ended] { ++ended; }, now);
  }

  const std::shared_ptr<ReadAdmission> admission_ = std::make_shared<ReadAdmission>(100, seconds(30));
  int first_ended_ = 0;
  int second_ended_ = 0;
  const std::unique_ptr<ReadAdmission::Read> first_ = Make(first_ended_);
  const std::unique_ptr<ReadAdmission::Read> second_ = Make(second_ended_);
};

TEST_F(ReadAdmissionTest, AdmitsWhatFitsTheMemory) {
  EXPECT_TRUE(first_->Admit(60, kStart).ok());
  EXPECT_THAT(second_->Admit(41, kStart), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(second_->Admit(40, kStart).ok());
}

TEST_F(ReadAdmissionTest, ASecondAdmissionReplacesTheFirst) {
  EXPECT_TRUE(first_->Admit(60, kStart).ok());
  EXPECT_TRUE(first_->Admit(100, kStart).ok());
  EXPECT_TRUE(first_->Admit(10, kStart).ok());
  EXPECT_TRUE(second_->Admit(90, kStart).ok());
}

TEST_F(ReadAdmissionTest, EndsReadsThatNobodyTakesIfTheirMemoryIsNeeded) {
  EXPECT_TRUE(first_->Admit(50, kStart).ok());
  EXPECT_TRUE(second_->Admit(50, kStart).ok());
  second_->OnTaken(kStart + seconds(20));
  int ended = 0;
  const auto third = Make(ended, kStart + seconds(29));
  EXPECT_FALSE(third->Admit(1, kStart + seconds(29)).ok());
  EXPECT_EQ(first_ended_, 0) << "the timeout has not passed";
  EXPECT_FALSE(third->Admit(1, kStart + seconds(30)).ok()) << "their memory is not free yet";
  EXPECT_FALSE(third->Admit(1, kStart + seconds(31)).ok());
  EXPECT_EQ(first_ended_, 1);
  EXPECT_EQ(second_ended_, 0) << "its client takes what comes";
}

TEST_F(ReadAdmissionTest, EndsNoReadWhileThereIsRoom) {
  EXPECT_TRUE(first_->Admit(50, kStart).ok());
  EXPECT_TRUE(second_->Admit(50, kStart + std::chrono::hours(1)).ok());
  EXPECT_EQ(first_ended_, 0);
}

TEST_F(ReadAdmissionTest, EndsNoReadThatIsOver) {
  EXPECT_TRUE(first_->Admit(100, kStart).ok());
  first_->OnOver();
  EXPECT_FALSE(second_->Admit(1, kStart + seconds(30)).ok());
  EXPECT_EQ(first_ended_, 0);
}

}  // namespace
}  // namespace sluice
