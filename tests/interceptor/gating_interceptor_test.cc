#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>

#include "sluice/interceptor.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/interceptor/gating_test.h"

namespace sluice {
namespace {

using testing::Call;
using testing::CallbackCall;
using testing::GatingTest;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::In;
using testing::kAnswerBytes;
using testing::kPatience;

class GatingInterceptorTest : public GatingTest {};

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

TEST_F(GatingInterceptorTest, AnAnswerLargerThanTheBudgetIsAlone) {
  server_.Close();
  Connect(/*answers=*/3);
  CallbackCall large;
  large.context().AddMetadata(kExpectedResponseBytesKey, "1000000");
  large.Start(*stub_);
  ASSERT_TRUE(AwaitOpen(1));
  CallbackCall small;
  small.Start(*stub_);
  EXPECT_TRUE(AwaitWaiting(1));
  server_.Open();
  for (Call* call : std::vector<Call*>{&large, &small}) {
    ASSERT_TRUE(call->Await());
    EXPECT_TRUE(call->status().ok()) << call->status().error_message();
  }
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

TEST_F(GatingInterceptorTest, LearnsHowLargeTheAnswersAre) {
  learn_ = true;
  sru_bytes_ = 1 << 20;  // alone, until more is known
  Connect(/*answers=*/3);
  for (int i = 0; i < 10; ++i) {
    CallbackCall call;
    call.Start(*stub_);
    ASSERT_TRUE(call.Await());
  }
  ASSERT_TRUE(AwaitIdle());
  server_.Close();
  CallbackCall calls[4];
  for (Call& call : calls) call.Start(*stub_);
  EXPECT_TRUE(AwaitOpen(3));
  EXPECT_TRUE(AwaitWaiting(1));
  server_.Open();
  for (Call& call : calls) EXPECT_TRUE(call.Await());
}

TEST_F(GatingInterceptorTest, LearnsFromWholeStreams) {
  learn_ = true;
  block_bytes_ = 1 << 20;
  Connect(/*answers=*/2);
  for (int i = 0; i < 10; ++i) {
    grpc::ClientContext context;
    const auto stream = blocks_->Read(&context, {});
    for (v1::ReadResponse part; stream->Read(&part);) {
    }
    EXPECT_TRUE(stream->Finish().ok());
  }
  ASSERT_TRUE(AwaitIdle());
  grpc::ClientContext context;
  const auto stream = blocks_->Read(&context, {});
  EXPECT_GT(link_->State().in_flight_bytes, 10 * 100);
  EXPECT_LT(link_->State().in_flight_bytes, 2 * 1514);
  for (v1::ReadResponse part; stream->Read(&part);) {
  }
  EXPECT_TRUE(stream->Finish().ok());
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

}  // namespace
}  // namespace sluice
