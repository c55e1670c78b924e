#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>

#include "sluice/interceptor.h"
#include "sluice/plan.h"
#include "sluice/v1/block_service.grpc.pb.h"
#include "sluice/v1/sru_service.grpc.pb.h"

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/rpc/gated_server.h"
#include "tests/rpc/stub_call.h"
#include "tests/rpc/test_cluster.h"

namespace sluice {
namespace {

using testing::Call;
using testing::CallbackCall;
using testing::Eventually;
using testing::GatedServer;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::In;
using testing::kAnswerBytes;
using testing::kPatience;
using testing::QueueCall;
using testing::SyncCall;

constexpr char kReadSru[] = "/sluice.v1.SruService/ReadSru";

template <class SomeCall>
std::unique_ptr<Call> Make() {
  return std::make_unique<SomeCall>();
}

struct Interface {
  const char* name;
  std::unique_ptr<Call> (*make)();
};

class GatingInterceptorTest : public ::testing::Test {
 protected:
  ~GatingInterceptorTest() override {
    server_.Open();
    if (link_) {
      EXPECT_TRUE(AwaitIdle());
    }
  }

  // So many answers at a time.
  void Connect(int answers, int64_t queue_limit = 65536) {
    LinkSchedule::Options schedule{.discipline = Discipline::kRolling, .queue_limit = queue_limit};
    schedule.budget_bytes = answers * schedule.profile.frame_bytes;
    link_ = *Link::Create({.schedule = schedule});
    std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> factories;
    factories.push_back(*CreateGatingInterceptorFactory(
        link_, {.response_bytes = [this](std::string_view method) { return Expected(method); }}));
    const auto channel = grpc::experimental::CreateCustomChannelWithInterceptors(
        server_.address(), grpc::InsecureChannelCredentials(), {}, std::move(factories));
    stub_ = v1::SruService::NewStub(channel);
    blocks_ = v1::BlockService::NewStub(channel);
  }

  std::optional<int64_t> Expected(std::string_view method) {
    if (method == kReadSru) return sru_bytes_;
    if (method == "/sluice.v1.BlockService/Read") return kAnswerBytes;
    return std::nullopt;
  }

  bool AwaitIdle() {
    return Eventually([this] {
      const ScheduleState state = link_->State();
      return state.submitted_calls == state.ended_calls && state.in_flight_bytes == 0;
    });
  }
  bool AwaitWaiting(int64_t calls) {
    return Eventually([this, calls] { return link_->State().waiting_calls == calls; });
  }
  bool AwaitOpen(int calls) {
    return server_.Await([calls](const GatedServer::Counts& counts) { return counts.open == calls; });
  }

  GatedServer server_;
  std::optional<int64_t> sru_bytes_ = kAnswerBytes;
  std::shared_ptr<Link> link_;
  std::unique_ptr<v1::SruService::Stub> stub_;
  std::unique_ptr<v1::BlockService::Stub> blocks_;
};

TEST_F(GatingInterceptorTest, RefusesWhatItCannotGateWith) {
  const GatingOptions options{.response_bytes = [](std::string_view) { return kAnswerBytes; }};
  const auto expect_refused = [](std::shared_ptr<Link> link, const GatingOptions& given, const std::string& reason) {
    const auto factory = CreateGatingInterceptorFactory(std::move(link), given);
    EXPECT_THAT(factory.status(), HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(factory.status().message()), HasSubstr(reason));
  };
  expect_refused(nullptr, options, "link is null");
  expect_refused(*Link::Create({.schedule = {.discipline = Discipline::kRolling}}), {}, "response_bytes is empty");
  for (const Discipline other : {Discipline::kUnscheduled, Discipline::kBatches, Discipline::kGrants}) {
    expect_refused(*Link::Create({.schedule = {.discipline = other}}), options,
                   "discipline of the link is " + std::string(DisciplineName(other)));
  }
}

TEST_F(GatingInterceptorTest, ACallsOwnSizeCountsAndIsNotSent) {
  std::atomic<int> carried = 0;
  server_.on_request = [&](const grpc::ServerContext& context) {
    carried += static_cast<int>(context.client_metadata().count(kExpectedResponseBytesKey));
  };
  server_.Close();
  Connect(/*answers=*/4);
  CallbackCall large;
  large.context().AddMetadata(kExpectedResponseBytesKey, "4000");  // three packets
  large.Start(*stub_);
  CallbackCall small[2];
  for (Call& call : small) call.Start(*stub_);
  EXPECT_TRUE(AwaitOpen(2));
  EXPECT_TRUE(AwaitWaiting(1));
  server_.Open();
  for (Call* call : std::vector<Call*>{&large, &small[0], &small[1]}) {
    ASSERT_TRUE(call->Await());
    EXPECT_TRUE(call->status().ok()) << call->status().error_message();
  }
  EXPECT_EQ(carried, 0);
}

TEST_F(GatingInterceptorTest, ASizeThatIsNoneEndsTheCall) {
  Connect(/*answers=*/1);
  for (const char* size : {"many", "-1", "4294967297"}) {
    CallbackCall call;
    call.context().AddMetadata(kExpectedResponseBytesKey, size);
    call.Start(*stub_);
    ASSERT_TRUE(call.Await());
    EXPECT_EQ(call.status().error_code(), grpc::StatusCode::INVALID_ARGUMENT) << size;
    EXPECT_THAT(call.status().error_message(), HasSubstr(size));
  }
  EXPECT_EQ(server_.counts().requests, 0);
}

TEST_F(GatingInterceptorTest, MethodsThatAreNotGatedPass) {
  sru_bytes_.reset();
  server_.Close();
  Connect(/*answers=*/1);
  CallbackCall calls[3];
  for (Call& call : calls) call.Start(*stub_);
  EXPECT_TRUE(AwaitOpen(3));
  EXPECT_EQ(link_->State().submitted_calls, 0);
  server_.Open();
  for (Call& call : calls) EXPECT_TRUE(call.Await());
}

TEST_F(GatingInterceptorTest, AStreamHoldsItsShareUntilItsEnd) {
  server_.Close();
  Connect(/*answers=*/1);
  grpc::ClientContext context;
  const auto stream = blocks_->Read(&context, {});
  v1::ReadResponse part;
  ASSERT_TRUE(stream->Read(&part));
  CallbackCall next;
  next.Start(*stub_);
  EXPECT_TRUE(AwaitWaiting(1));
  server_.Open();
  int parts = 1;
  while (stream->Read(&part)) ++parts;
  EXPECT_EQ(parts, 10);
  EXPECT_EQ(link_->State().waiting_calls, 1);
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_TRUE(next.Await());
  EXPECT_TRUE(next.status().ok());
}

TEST_F(GatingInterceptorTest, AStreamThatIsLeftGivesItsShareBack) {
  Connect(/*answers=*/1);
  {
    grpc::ClientContext context;
    const auto stream = blocks_->Read(&context, {});
    v1::ReadResponse part;
    ASSERT_TRUE(stream->Read(&part));
    EXPECT_EQ(link_->State().in_flight_calls, 1);
    context.TryCancel();
  }
  EXPECT_TRUE(AwaitIdle());
}

// Its status is asked for apart from its start, so gRPC may see the deadline first.
TEST_F(GatingInterceptorTest, AnAsynchronousStreamEndsWhileItIsHeld) {
  server_.Close();
  Connect(/*answers=*/1);
  CallbackCall first;
  first.Start(*stub_);
  ASSERT_TRUE(AwaitOpen(1));
  for (const bool cancelled : {false, true}) {
    grpc::ClientContext context;
    if (!cancelled) context.set_deadline(In(absl::Milliseconds(50)));
    grpc::CompletionQueue queue;
    grpc::Status status;
    const auto stream = blocks_->PrepareAsyncRead(&context, {}, &queue);
    int tags[2];
    stream->StartCall(&tags[0]);
    stream->Finish(&status, &tags[1]);
    EXPECT_TRUE(AwaitWaiting(1));
    if (cancelled) context.TryCancel();
    for (int i = 0; i < 2; ++i) {
      void* tag = nullptr;
      bool ok = false;
      ASSERT_EQ(queue.AsyncNext(&tag, &ok, In(kPatience)), grpc::CompletionQueue::GOT_EVENT);
    }
    EXPECT_EQ(status.error_code(), cancelled ? grpc::StatusCode::CANCELLED : grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_EQ(link_->State().waiting_calls, 0);
  }
  server_.Open();
  ASSERT_TRUE(first.Await());
  EXPECT_EQ(server_.counts().requests, 1);
}

// Nothing else keeps the link then, nor the channel.
TEST_F(GatingInterceptorTest, CallsOutliveTheStubAndTheLinkOfTheApplication) {
  server_.Close();
  Connect(/*answers=*/1);
  CallbackCall calls[3];
  for (Call& call : calls) call.Start(*stub_);
  ASSERT_TRUE(AwaitOpen(1));
  stub_.reset();
  blocks_.reset();
  link_.reset();
  server_.Open();
  for (Call& call : calls) {
    ASSERT_TRUE(call.Await());
    EXPECT_TRUE(call.status().ok()) << call.status().error_message();
  }
}

class GatingEveryInterfaceTest : public GatingInterceptorTest, public ::testing::WithParamInterface<Interface> {
 protected:
  std::unique_ptr<Call> Start(absl::Duration timeout = kPatience) {
    std::unique_ptr<Call> call = GetParam().make();
    call->context().set_deadline(In(timeout));
    call->Start(*stub_);
    return call;
  }
};
INSTANTIATE_TEST_SUITE_P(GatingInterceptor, GatingEveryInterfaceTest,
                         ::testing::Values(Interface{"Sync", &Make<SyncCall>}, Interface{"Queue", &Make<QueueCall>},
                                           Interface{"Callback", &Make<CallbackCall>}),
                         [](const auto& info) { return info.param.name; });

TEST_P(GatingEveryInterfaceTest, NeverMoreThanTheBudgetIsInFlight) {
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

TEST_P(GatingEveryInterfaceTest, ACancelEndsACallThatIsHeld) {
  server_.Close();
  Connect(/*answers=*/1);
  const auto first = Start();
  ASSERT_TRUE(AwaitOpen(1));
  const auto held = Start();
  ASSERT_TRUE(AwaitWaiting(1));
  held->context().TryCancel();
  ASSERT_TRUE(held->Await());
  EXPECT_EQ(held->status().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_THAT(held->status().error_message(), HasSubstr("it was not sent"));
  EXPECT_FALSE(first->ended());
  server_.Open();
  ASSERT_TRUE(first->Await());
  EXPECT_TRUE(first->status().ok());
  EXPECT_EQ(server_.counts().requests, 1);
}

TEST_P(GatingEveryInterfaceTest, TheDeadlineEndsACallThatIsHeld) {
  server_.Close();
  Connect(/*answers=*/1);
  const auto first = Start();
  ASSERT_TRUE(AwaitOpen(1));
  const auto held = Start(absl::Milliseconds(50));
  ASSERT_TRUE(held->Await());
  EXPECT_EQ(held->status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_FALSE(first->ended());
  EXPECT_EQ(link_->State().waiting_calls, 0);
  server_.Open();
  ASSERT_TRUE(first->Await());
  EXPECT_EQ(server_.counts().requests, 1);
}

TEST_P(GatingEveryInterfaceTest, ACallInFlightThatIsCancelledGivesItsShareBack) {
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

TEST_P(GatingEveryInterfaceTest, ACallThatIsOverBeforeItsStartIsNotSent) {
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

TEST_P(GatingEveryInterfaceTest, AFullQueueRefuses) {
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

TEST_P(GatingEveryInterfaceTest, CallsToADeadServerEndAndHoldNothing) {
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

// Whatever becomes of a call, and whoever is first: TearDown looks that nothing is left.
TEST_P(GatingEveryInterfaceTest, ManyCallsThatEndInManyWaysLeaveNothingBehind) {
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
                                                                grpc::StatusCode::DEADLINE_EXCEEDED));
    }
  }
}

}  // namespace
}  // namespace sluice
