#include "lib/storage/serving/answer_memory.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"

namespace sluice {
namespace {

using std::chrono::seconds;
using testing::HasCode;

constexpr TimePoint kStart = TimePoint() + std::chrono::hours(1);

class AnswerMemoryTest : public ::testing::Test {
 protected:
  std::unique_ptr<AnswerMemory::Share> Make(int& ended, const std::string& client = "10.0.0.1") {
    return std::make_unique<AnswerMemory::Share>(memory_, client, [&ended] { ++ended; });
  }
  // Returns the bytes that the client can take one by one.
  int TakeAll(const std::string& client) {
    int bytes = 0;
    while (true) {
      auto share = Make(first_ended_, client);
      if (!share->Take(1, kStart).ok()) return bytes;
      taken_.push_back(std::move(share));
      ++bytes;
    }
  }

  const std::shared_ptr<AnswerMemory> memory_ = std::make_shared<AnswerMemory>(100, seconds(30));
  int first_ended_ = 0;
  int second_ended_ = 0;
  const std::unique_ptr<AnswerMemory::Share> first_ = Make(first_ended_);
  const std::unique_ptr<AnswerMemory::Share> second_ = Make(second_ended_);
  std::vector<std::unique_ptr<AnswerMemory::Share>> taken_;
};

TEST_F(AnswerMemoryTest, TakesWhatFits) {
  EXPECT_TRUE(first_->Take(60, kStart).ok());
  EXPECT_THAT(second_->Take(41, kStart), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(second_->Take(20, kStart).ok());
  int ended = 0;
  EXPECT_THAT(Make(ended)->Take(UINT64_MAX, kStart), HasCode(absl::StatusCode::kResourceExhausted));
}

TEST_F(AnswerMemoryTest, ASecondTakeReplacesTheFirst) {
  EXPECT_TRUE(first_->Take(60, kStart).ok());
  EXPECT_TRUE(first_->Take(100, kStart).ok());
  EXPECT_TRUE(first_->Take(10, kStart).ok());
  EXPECT_TRUE(second_->Take(70, kStart).ok());
  EXPECT_TRUE(first_->Take(0, kStart).ok());
  EXPECT_TRUE(second_->Take(100, kStart).ok());
}

TEST_F(AnswerMemoryTest, AClientLeavesAPartForOthers) {
  EXPECT_EQ(TakeAll("10.0.0.1"), 80);
  EXPECT_EQ(TakeAll("10.0.0.2"), 16);
  EXPECT_EQ(TakeAll("10.0.0.3"), 3);
  EXPECT_THAT(Make(second_ended_, "10.0.0.1")->Take(1, kStart), HasCode(absl::StatusCode::kResourceExhausted));
  // All give their memory back, and each has as much as before.
  taken_.clear();
  EXPECT_EQ(TakeAll("10.0.0.2"), 80);
}

TEST_F(AnswerMemoryTest, SaysThatAClientHasItsPart) {
  EXPECT_EQ(TakeAll("10.0.0.1"), 80);
  EXPECT_THAT(
      first_->Take(1, kStart).message(),
      ::testing::HasSubstr("responses of 80 bytes wait to be sent to this client (10.0.0.1), and 20 bytes are left"));
}

TEST_F(AnswerMemoryTest, EndsCallsThatNobodyTakesIfTheirMemoryIsNeeded) {
  EXPECT_TRUE(first_->Take(50, kStart).ok());
  EXPECT_TRUE(second_->Take(30, kStart).ok());
  first_->OnOffered(kStart);
  second_->OnOffered(kStart);
  second_->OnTaken();
  second_->OnOffered(kStart + seconds(20));
  int ended = 0;
  const auto third = Make(ended);
  EXPECT_FALSE(third->Take(1, kStart + seconds(29)).ok());
  EXPECT_EQ(first_ended_, 0) << "the timeout has not passed";
  EXPECT_FALSE(third->Take(1, kStart + seconds(30)).ok()) << "their memory is not free yet";
  EXPECT_FALSE(third->Take(1, kStart + seconds(31)).ok());
  EXPECT_EQ(first_ended_, 1);
  EXPECT_EQ(second_ended_, 0) << "its client takes what comes";
}

// The disk, or the link, is slow; the client would take more.
TEST_F(AnswerMemoryTest, EndsNoCallThatOffersNothing) {
  EXPECT_TRUE(first_->Take(100, kStart).ok());
  EXPECT_FALSE(second_->Take(1, kStart + seconds(100)).ok());
  first_->OnOffered(kStart);
  first_->OnTaken();
  EXPECT_FALSE(second_->Take(1, kStart + seconds(100)).ok());
  EXPECT_EQ(first_ended_, 0);
}

TEST_F(AnswerMemoryTest, EndsNoCallWhileThereIsRoom) {
  EXPECT_TRUE(first_->Take(50, kStart).ok());
  first_->OnOffered(kStart);
  EXPECT_TRUE(second_->Take(30, kStart + std::chrono::hours(1)).ok());
  EXPECT_EQ(first_ended_, 0);
}

TEST_F(AnswerMemoryTest, EndsNoCallThatIsOver) {
  EXPECT_TRUE(first_->Take(100, kStart).ok());
  first_->OnOffered(kStart);
  first_->OnOver();
  EXPECT_FALSE(second_->Take(1, kStart + seconds(30)).ok());
  EXPECT_EQ(first_ended_, 0);
}

}  // namespace
}  // namespace sluice
