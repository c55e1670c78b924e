#include "sluice/endpoint.h"

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/endpoint/endpoint_fixture.h"

namespace sluice {
namespace {

using testing::Call;
using testing::CallbackCall;
using testing::EndpointTest;
using ::testing::HasSubstr;
using testing::In;
using testing::kAnswerBytes;
using testing::kPatience;
using testing::QueueCall;
using testing::SyncCall;

template <class SomeCall>
std::unique_ptr<Call> Make() {
  return std::make_unique<SomeCall>();
}

struct Interface {
  const char* name;
  std::unique_ptr<Call> (*make)();
};

class EndpointCallTest : public EndpointTest, public ::testing::WithParamInterface<Interface> {
 protected:
  std::unique_ptr<Call> Start(absl::Duration timeout = kPatience) {
    std::unique_ptr<Call> call = GetParam().make();
    call->context().set_deadline(In(timeout));
    call->Start(*stub_);
    return call;
  }
};
INSTANTIATE_TEST_SUITE_P(OfEveryInterface, EndpointCallTest,
                         ::testing::Values(Interface{"Sync", &Make<SyncCall>}, Interface{"Queue", &Make<QueueCall>},
                                           Interface{"Callback", &Make<CallbackCall>}),
                         [](const auto& info) { return info.param.name; });

TEST_P(EndpointCallTest, NeverMoreThanTheBudgetIsInFlight) {
  constexpr int kCalls = 200;
  server_.Close();
  Connect(/*answers=*/3);
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < kCalls; ++i) calls.push_back(Start());
  ASSERT_TRUE(AwaitOpen(3));
  ASSERT_TRUE(AwaitWaiting(kCalls - 3));
  server_.Open();
  for (const auto& call : calls) {
    ASSERT_TRUE(call->Await());
    EXPECT_TRUE(call->status().ok()) << call->status().error_message();
    EXPECT_EQ(call->response().data().size(), size_t{kAnswerBytes});
  }
  EXPECT_EQ(server_.counts().requests, kCalls);
  EXPECT_EQ(server_.counts().most_open, 3);
}

TEST_P(EndpointCallTest, ACancelEndsACallThatIsHeld) {
  server_.Close();
  Connect(/*answers=*/1);
  const auto first = Start();
  ASSERT_TRUE(AwaitOpen(1));
  const auto held = Start();
  ASSERT_TRUE(AwaitWaiting(1));
  held->context().TryCancel();
  ASSERT_TRUE(held->Await());
  EXPECT_EQ(held->status().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_FALSE(first->ended());
  EXPECT_TRUE(AwaitWaiting(0));
  server_.Open();
  ASSERT_TRUE(first->Await());
  EXPECT_TRUE(first->status().ok());
  EXPECT_EQ(server_.counts().requests, 1);
}

TEST_P(EndpointCallTest, TheDeadlineEndsACallThatIsHeld) {
  server_.Close();
  Connect(/*answers=*/1);
  const auto first = Start();
  ASSERT_TRUE(AwaitOpen(1));
  const auto held = Start(absl::Milliseconds(50));
  ASSERT_TRUE(held->Await());
  EXPECT_EQ(held->status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_FALSE(first->ended());
  EXPECT_TRUE(AwaitWaiting(0));
  server_.Open();
  ASSERT_TRUE(first->Await());
  EXPECT_EQ(server_.counts().requests, 1);
}

TEST_P(EndpointCallTest, ACallInFlightThatIsCancelledGivesItsShareBack) {
  server_.Close();
  Connect(/*answers=*/1);
  const auto first = Start();
  ASSERT_TRUE(AwaitOpen(1));
  const auto second = Start();
  ASSERT_TRUE(AwaitWaiting(1));
  first->context().TryCancel();
  ASSERT_TRUE(first->Await());
  EXPECT_EQ(first->status().error_code(), grpc::StatusCode::CANCELLED);
  server_.Open();
  ASSERT_TRUE(second->Await());
  EXPECT_TRUE(second->status().ok()) << second->status().error_message();
}

TEST_P(EndpointCallTest, ACallThatIsOverBeforeItsStartIsNotSent) {
  Connect(/*answers=*/1);
  const auto cancelled = GetParam().make();
  cancelled->context().TryCancel();
  cancelled->Start(*stub_);
  ASSERT_TRUE(cancelled->Await());
  EXPECT_EQ(cancelled->status().error_code(), grpc::StatusCode::CANCELLED);
  const auto late = Start(-absl::Seconds(1));
  ASSERT_TRUE(late->Await());
  EXPECT_EQ(late->status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(server_.counts().requests, 0);
}

TEST_P(EndpointCallTest, AFullQueueRefuses) {
  server_.Close();
  Connect(/*answers=*/1, /*queue_limit=*/1);
  const auto first = Start();
  ASSERT_TRUE(AwaitOpen(1));
  const auto held = Start();
  ASSERT_TRUE(AwaitWaiting(1));
  const auto refused = Start();
  ASSERT_TRUE(refused->Await());
  EXPECT_EQ(refused->status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  server_.Open();
  ASSERT_TRUE(first->Await());
  ASSERT_TRUE(held->Await());
  EXPECT_TRUE(held->status().ok());
}

TEST_P(EndpointCallTest, CallsToADeadServerEndAndHoldNothing) {
  server_.Stop();
  Connect(/*answers=*/1);
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 10; ++i) calls.push_back(Start());
  for (const auto& call : calls) {
    ASSERT_TRUE(call->Await());
    EXPECT_EQ(call->status().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  EXPECT_TRUE(AwaitIdle());
}

// Calls end in any way, and in any order. TearDown checks that no call is left.
TEST_P(EndpointCallTest, ManyCallsThatEndInManyWaysLeaveNothingBehind) {
  const auto seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE("--gtest_random_seed=" + std::to_string(seed));
  std::mt19937 dice(static_cast<unsigned>(seed));
  Connect(/*answers=*/2);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < 20; ++i) calls.push_back(Start(dice() % 4 == 0 ? absl::Milliseconds(dice() % 4) : kPatience));
    for (const auto& call : calls) {
      if (dice() % 4 == 0) call->context().TryCancel();
    }
    for (const auto& call : calls) {
      ASSERT_TRUE(call->Await());
      EXPECT_THAT(call->status().error_code(), ::testing::AnyOf(grpc::StatusCode::OK, grpc::StatusCode::CANCELLED,
                                                                grpc::StatusCode::DEADLINE_EXCEEDED))
          << call->status().error_message();
    }
  }
}

TEST_F(EndpointTest, AStreamPassesMessageByMessage) {
  Connect(/*answers=*/1);
  grpc::ClientContext context;
  context.set_deadline(In(kPatience));
  const auto reader = blocks_->Read(&context, v1::ReadRequest());
  v1::ReadResponse part;
  int parts = 0;
  while (reader->Read(&part)) {
    EXPECT_EQ(part.chunk().data().size(), 100u);
    ++parts;
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(parts, 10);
}

std::string WhyNot(std::shared_ptr<Link> link, Endpoint::Options options = {}) {
  return Endpoint::Create(std::move(link), std::move(options)).status().ToString();
}

TEST_F(EndpointTest, RefusesWhatItCannotServe) {
  EXPECT_THAT(WhyNot(nullptr), HasSubstr("INVALID_ARGUMENT: link is null"));
  EXPECT_THAT(WhyNot(*Link::Create({.schedule = {.policy = SchedulePolicy::kBatches}})), HasSubstr("batches"));
  EXPECT_THAT(WhyNot(*Link::Create(Link::Options()), {.listen = "127.0.0.1:0"}),
              HasSubstr("INVALID_ARGUMENT: listen is \"127.0.0.1:0\"; it must be unix:PATH"));
}

}  // namespace
}  // namespace sluice
