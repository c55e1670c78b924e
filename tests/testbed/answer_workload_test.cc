#include "tests/testbed/answer_workload.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::testbed {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

std::vector<uint32_t> Sizes(const std::vector<v1::AnswerRequest>& requests) {
  std::vector<uint32_t> sizes;
  for (const v1::AnswerRequest& request : requests) sizes.push_back(request.response_bytes());
  return sizes;
}

TEST(ParseResponseBytesTest, TakesASizeOrARange) {
  const absl::StatusOr<AnswerShape> fixed = ParseResponseBytes("10kb");
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_EQ(fixed->min_bytes, 10240U);
  EXPECT_EQ(fixed->max_bytes, 10240U);
  const absl::StatusOr<AnswerShape> range = ParseResponseBytes("200:200000");
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_EQ(range->min_bytes, 200U);
  EXPECT_EQ(range->max_bytes, 200000U);
}

TEST(ParseResponseBytesTest, RefusesWhatIsNoSize) {
  for (const std::string text : {"", "much", "0", "200:", "200:100", "1:2:3", "1gb"}) {
    const absl::Status status = ParseResponseBytes(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"")) << text;
  }
}

TEST(AnswerWorkloadTest, AsksForWhatItIsGiven) {
  AnswerWorkload workload({.min_bytes = 7,
                           .max_bytes = 7,
                           .messages = 3,
                           .think_us = 4,
                           .tail_think_us = 5,
                           .tail_share = 0.5,
                           .error_details_bytes = 6},
                          1);
  const std::vector<v1::AnswerRequest> requests = workload.NextBlock(2);
  ASSERT_EQ(requests.size(), 2U);
  for (const v1::AnswerRequest& request : requests) {
    EXPECT_EQ(request.response_bytes(), 7U);
    EXPECT_EQ(request.messages(), 3U);
    EXPECT_EQ(request.think_us(), 4U);
    EXPECT_EQ(request.error_details_bytes(), 6U);
    EXPECT_EQ(request.tail_think_us(), 5U);
    EXPECT_EQ(request.tail_share(), 0.5);
  }
}

TEST(AnswerWorkloadTest, SizesAreLogUniformInTheirRange) {
  AnswerWorkload workload({.min_bytes = 200, .max_bytes = 200000}, 1);
  std::vector<uint32_t> sizes = Sizes(workload.NextBlock(10000));
  EXPECT_THAT(sizes, Each(AllOf(Ge(200U), Le(200000U))));
  std::sort(sizes.begin(), sizes.end());
  // Each of the three decades holds a third of the sizes.
  const auto below = [&](uint32_t bytes) {
    return std::lower_bound(sizes.begin(), sizes.end(), bytes) - sizes.begin();
  };
  EXPECT_NEAR(below(2000), 3333, 250);
  EXPECT_NEAR(below(20000), 6667, 250);
}

TEST(AnswerWorkloadTest, ASeedDrawsTheSameSizesAgainAndAnotherOneDoesNot) {
  const AnswerShape shape{.min_bytes = 200, .max_bytes = 200000};
  AnswerWorkload first(shape, 1);
  AnswerWorkload again(shape, 1);
  AnswerWorkload other(shape, 2);
  const std::vector<uint32_t> sizes = Sizes(first.NextBlock(20));
  EXPECT_EQ(Sizes(again.NextBlock(20)), sizes);
  EXPECT_NE(Sizes(other.NextBlock(20)), sizes);
  EXPECT_NE(Sizes(first.NextBlock(20)), sizes) << "every block draws anew";
}

TEST(BlockRecordTest, CountsAllBytesAndThoseOfUsualAnswers) {
  v1::AnswerRequest request;
  request.set_response_bytes(10);
  v1::AnswerResponse response;
  response.set_payload(std::string(10, 'x'));
  BlockRecord record;
  ASSERT_TRUE(record.Add(request, response).ok());
  const auto usual_ended = record.usual_ended;
  EXPECT_GE(usual_ended, record.started);
  response.set_tail(true);
  ASSERT_TRUE(record.Add(request, response).ok());
  EXPECT_EQ(record.bytes, 20);
  EXPECT_EQ(record.usual_bytes, 10);
  EXPECT_EQ(record.usual_ended, usual_ended);
}

TEST(BlockRecordTest, RefusesAnAnswerOfAnotherSize) {
  v1::AnswerRequest request;
  request.set_response_bytes(10);
  v1::AnswerResponse response;
  response.set_payload("short");
  BlockRecord record;
  EXPECT_EQ(record.Add(request, response).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(record.bytes, 0);
}

}  // namespace
}  // namespace sluice::testbed
