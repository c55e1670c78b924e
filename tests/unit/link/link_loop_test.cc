#include "lib/link/link_loop.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/link/link_loop_fixture.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::CallRecord;
using ::testing::ElementsAre;
using testing::HasCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TestHttp2Server;

using LinkLoopTest = testing::LinkLoopTest;

TEST_F(LinkLoopTest, AnAnswerComesWhole) {
  StartLink();
  TestHttp2Server server([](auto& call) { call.Answer(call.path()); });
  const CallRecord call = AwaitEnd(AskOne(server.address()));
  EXPECT_TRUE(call.status.ok()) << call.status;
  EXPECT_THAT(call.messages, ElementsAre("/test.Answers/Get"));
  EXPECT_EQ(call.sent, 1);
  EXPECT_EQ(call.ready, 1);
  EXPECT_TRUE(AwaitIdle());
}

// The worker responds while the link's thread is busy with the rest of the turn.
TEST_F(LinkLoopTest, TheRequestsOfManyLeaveEarlyWhereItIsAskedFor) {
  StartLink(Ample());
  std::vector<std::unique_ptr<TestHttp2Server>> servers;
  std::vector<std::string> targets;
  for (int i = 0; i < 8; ++i) {
    servers.push_back(std::make_unique<TestHttp2Server>([](auto& call) { call.Answer("!"); }));
    targets.push_back(servers.back()->address());
    Connect(targets.back());
  }
  std::vector<size_t> tags;
  executor_.Await([&] {
    tags = AskHere(targets, CallOptions());
    loop_->flushes().FlushEarly();
    for (const auto& server : servers) EXPECT_TRUE(server->AwaitRequests(1));
    // The end of the turn finds the requests after it.
    const std::vector<size_t> more = AskHere(targets, CallOptions());
    tags.insert(tags.end(), more.begin(), more.end());
  });
  for (const size_t tag : tags) EXPECT_TRUE(AwaitEnd(tag).status.ok());
  EXPECT_TRUE(AwaitIdle());
}

// A response of any size, held back until it is granted. A server that obeys the window exactly can send its trailers.
TEST_F(LinkLoopTest, AfterTheWholeAnswerTheWindowHasAByte) {
  StartLink(Grants());
  TestHttp2Server server([](auto&) {});
  int requests = 0;
  for (const size_t size : {0, 1, 2, 5, 6, 7, 1000, 20'000, 300'000}) {
    const size_t tag = AskOne(server.address(), {.response_bytes = 20'000});
    ASSERT_TRUE(server.AwaitRequests(++requests));
    server.Run([&] {
      EXPECT_EQ(server.calls().back()->window_bytes(), 6) << "nothing is granted";
      server.calls().back()->SendHead();
      server.calls().back()->SendData(FrameMessage(std::string(size, 'x')));
    });
    const auto whole = [](const CallRecord& record) { return record.messages.size() == 1; };
    EXPECT_EQ(owner_.Await(tag, whole).messages.at(0).size(), size);
    AwaitWindow(server, static_cast<size_t>(requests) - 1, 1);
    server.Run([&] { server.calls().back()->SendTrailers(); });
    EXPECT_TRUE(AwaitEnd(tag).status.ok()) << size;
  }
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(LinkLoopTest, TheSpareByteMayBeUsedBeforeTheGrant) {
  StartLink(Grants());
  const std::string answer = FrameMessage(std::string(50'000, 'x'));
  TestHttp2Server server([&](auto& call) {
    call.SendHead();
    call.SendData(answer);  // six bytes leave at once
    call.SendTrailers();
  });
  Connect(server.address());
  const size_t tag = AskOne(server.address(), {.response_bytes = 20'000});
  const CallRecord call = AwaitEnd(tag);
  EXPECT_TRUE(call.status.ok()) << call.status;
  ASSERT_EQ(call.messages.size(), 1U);
  EXPECT_EQ(call.messages[0].size(), 50'000U);
  server.Run([&] { EXPECT_GE(server.calls().back()->window_bytes(), 0); });
  EXPECT_TRUE(AwaitIdle());
}

// Some servers pad their messages, and padding uses the window.
TEST_F(LinkLoopTest, PaddingIsMadeGood) {
  StartLink(Grants());
  const std::string message(3000, 'x');
  TestHttp2Server server([](auto&) {});
  Connect(server.address());
  const size_t tag = AskOne(server.address(), {.response_bytes = 20'000});
  ASSERT_TRUE(server.AwaitRequests(1));
  const std::string answer = FrameMessage(message);
  server.Run([&] {
    server.calls()[0]->SendHead();
    server.calls()[0]->SendFrames(raw::PaddedData(server.calls()[0]->stream(), answer.substr(0, 2), 3));
  });
  // Fill the window, half of it with padding; not even a byte is left between two frames.
  for (size_t sent = 2; sent < answer.size();) {
    AwaitWindow(server, 0, 1);
    server.Run([&] {
      const auto window = static_cast<size_t>(server.calls()[0]->window_bytes());
      const std::string part = answer.substr(sent, std::min<size_t>((window + 1) / 2, 200));
      const int32_t stream = server.calls()[0]->stream();
      const size_t padding = window - part.size();  // its length field takes a byte
      sent += part.size();
      server.calls()[0]->SendFrames(padding == 0 ? raw::Data(stream, part)
                                                 : raw::PaddedData(stream, part, std::min<size_t>(padding - 1, 255)));
    });
  }
  server.Run([&] { server.calls()[0]->SendTrailers(); });
  const CallRecord call = AwaitEnd(tag);
  EXPECT_TRUE(call.status.ok()) << call.status;
  EXPECT_THAT(call.messages, ElementsAre(message));
  EXPECT_TRUE(AwaitIdle());
}

// A response is ready only when its length prefix is complete.
TEST_F(LinkLoopTest, APieceOfThePrefixDoesNotMakeAnAnswerReady) {
  StartLink(Grants());
  const std::string answer = FrameMessage("whole");
  TestHttp2Server server([](auto&) {});
  Connect(server.address());
  const std::vector<size_t> tags = Ask({server.address(), server.address()}, {.response_bytes = 20'000});
  ASSERT_TRUE(server.AwaitRequests(2));
  const auto send = [&](size_t from, size_t bytes) {
    server.Run(
        [&] { server.calls()[0]->SendFrames(raw::Data(server.calls()[0]->stream(), answer.substr(from, bytes))); });
  };
  server.Run([&] { server.calls()[0]->SendHead(); });
  send(0, 3);
  // It uses the same connection, so the piece has arrived before it.
  server.Run([&] { server.calls()[1]->Fail(absl::NotFoundError("no")); });
  EXPECT_THAT(AwaitEnd(tags[1]).status, HasCode(absl::StatusCode::kNotFound));
  EXPECT_EQ(owner_.Get(tags[0]).ready, 0);
  send(3, 2);
  AwaitReady(tags[0]);
  AwaitWindow(server, 0, 5);
  send(5, 5);
  server.Run([&] { server.calls()[0]->SendTrailers(); });
  const CallRecord call = AwaitEnd(tags[0]);
  EXPECT_TRUE(call.status.ok()) << call.status;
  EXPECT_THAT(call.messages, ElementsAre("whole"));
  EXPECT_EQ(call.ready, 1);
}

TEST_F(LinkLoopTest, AnErrorNeedsNoGrant) {
  StartLink(Grants());
  TestHttp2Server server([](auto&) {});
  Connect(server.address());
  const size_t tag = AskOne(server.address(), {.response_bytes = 20'000});
  ASSERT_TRUE(server.AwaitRequests(1));
  SetLease(0);
  server.Run([&] { server.calls()[0]->Fail(absl::NotFoundError("no such thing")); });
  EXPECT_EQ(AwaitEnd(tag).status, absl::NotFoundError("no such thing"));
  EXPECT_TRUE(AwaitIdle());
}

// The call was granted, and its worker never sends.
TEST_F(LinkLoopTest, AHungWorkerHoldsUpTheOthersForAStallAtMost) {
  ScheduleOptions options = Grants();
  options.stall_timeout = absl::Seconds(1);
  StartLink(options);
  TestHttp2Server hung([](auto& call) {
    call.SendHead();
    call.SendFrames(raw::Data(call.stream(), FrameMessage(std::string(100'000, 'x')).substr(0, 5)));
  });
  TestHttp2Server server([](auto& call) { call.Answer(std::string(100'000, 'x')); });
  Connect(hung.address());
  Connect(server.address());
  const size_t stuck = AskOne(hung.address(), {.response_bytes = 100'000});
  AwaitReady(stuck);
  const auto begin = std::chrono::steady_clock::now();
  for (const size_t tag : Ask({server.address(), server.address()}, {.response_bytes = 100'000})) {
    EXPECT_TRUE(AwaitEnd(tag).status.ok());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  EXPECT_EQ(owner_.Get(stuck).ended, 0);
  Cancel(stuck);
  EXPECT_TRUE(AwaitIdle());
}

// Parts of responses also fill whole packets in records of TLS.
TEST_F(LinkLoopTest, ALinkWhoseWorkersSpeakTlsAllowsForItsRecords) {
  ScheduleOptions options = Grants();
  StartLink(options);
  executor_.Await([&] {
    const auto overhead_bytes = [this] { return loop_->schedule().options().record_overhead_bytes; };
    workers_["plain"] = loop_->workers().Find("127.0.0.1:1", nullptr);
    EXPECT_EQ(overhead_bytes(), 9);
    const auto tls = loop_->workers().FindTls({});
    ASSERT_TRUE(tls.ok()) << tls.status();
    workers_["tls"] = loop_->workers().Find("127.0.0.1:1", *tls);
    EXPECT_EQ(overhead_bytes(), 31);
    EXPECT_TRUE(loop_->Reconfigure(options).ok());
    EXPECT_EQ(overhead_bytes(), 31);
    options.record_overhead_bytes = 100;
    EXPECT_TRUE(loop_->Reconfigure(options).ok());
    EXPECT_EQ(overhead_bytes(), 100);
  });
}

// --- Streams of a connection.

TEST_F(LinkLoopTest, CallsBeyondTheStreamsOfAConnectionWaitAndHoldUpNobody) {
  StartLink();
  SetMaxConnections(1);
  TestHttp2Server narrow([](auto&) {}, {.max_concurrent_streams = 1});
  TestHttp2Server wide([](auto& call) { call.Answer("wide"); });
  Connect(narrow.address());
  Connect(wide.address());
  const std::vector<size_t> tags = Ask(std::vector<std::string>(10, narrow.address()));
  ASSERT_TRUE(narrow.AwaitRequests(1));
  EXPECT_TRUE(AwaitState([](const ScheduleState& state) { return state.parked_calls == 9; }));
  EXPECT_THAT(AwaitEnd(AskOne(wide.address())).messages, ElementsAre("wide"));
  for (int answered = 0; answered < 10; ++answered) {
    ASSERT_TRUE(narrow.AwaitRequests(answered + 1));
    narrow.Run([&] { narrow.calls().back()->Answer(std::to_string(answered)); });
  }
  for (size_t i = 0; i < tags.size(); ++i) {
    const CallRecord call = AwaitEnd(tags[i]);
    EXPECT_TRUE(call.status.ok()) << call.status;
    EXPECT_THAT(call.messages, ElementsAre(std::to_string(i))) << "in their order";
  }
  EXPECT_EQ(narrow.counts().connections, 1);
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(LinkLoopTest, WhatWaitsForAStreamEndsAtItsDeadlineAndWhenItIsCancelled) {
  StartLink();
  SetMaxConnections(1);
  TestHttp2Server server([](auto&) {}, {.max_concurrent_streams = 1});
  Connect(server.address());
  const size_t first = AskOne(server.address());
  ASSERT_TRUE(server.AwaitRequests(1));
  const size_t late = AskOne(server.address(), {.timeout = milliseconds(50)});
  EXPECT_THAT(AwaitEnd(late).status, HasCode(absl::StatusCode::kDeadlineExceeded));
  const size_t cancelled = AskOne(server.address());
  Cancel(cancelled);
  EXPECT_EQ(AwaitEnd(cancelled).status, absl::CancelledError("not needed"));
  EXPECT_EQ(owner_.Get(cancelled).sent, 0);
  server.Run([&] { server.calls()[0]->Answer("one"); });
  EXPECT_TRUE(AwaitEnd(first).status.ok());
  EXPECT_TRUE(AwaitIdle());
  EXPECT_EQ(server.counts().requests, 1);
}

// Two requests are about to leave, and only one stream is free. The owner of the first cancels the second when the
// first is sent.
TEST_F(LinkLoopTest, ACallThatIsCancelledJustBeforeItLeavesEnds) {
  StartLink();
  TestHttp2Server server([](auto& call) { call.Answer("one"); }, {.max_concurrent_streams = 1});
  Connect(server.address());
  AskOne(server.address());
  AwaitEnd(0);
  owner_.on_sent = [this](size_t tag) {
    if (tag == 1) CancelHere(2);
  };
  const std::vector<size_t> tags = Ask({server.address(), server.address()});
  EXPECT_TRUE(AwaitEnd(tags[0]).status.ok());
  EXPECT_EQ(AwaitEnd(tags[1]).status, absl::CancelledError("not needed"));
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(LinkLoopTest, ARefusedStreamIsSentAgain) {
  StartLink();
  int refused = 0;
  TestHttp2Server server([&](auto& call) {
    if (++refused <= 3) return call.Reset(Http2Error::kRefusedStream);
    call.Answer("at last");
  });
  const CallRecord call = AwaitEnd(AskOne(server.address()));
  EXPECT_TRUE(call.status.ok()) << call.status;
  EXPECT_THAT(call.messages, ElementsAre("at last"));
  EXPECT_EQ(call.ready, 1);
  EXPECT_EQ(server.counts().requests, 4);
  EXPECT_EQ(server.counts().connections, 1);
  EXPECT_TRUE(AwaitIdle());
  executor_.Await([&] {
    const auto load_of = [&](uint32_t worker) { return loop_->schedule().Load(worker); };
    EXPECT_EQ(loop_->worker_table().Summaries(load_of).at(0).in_flight, 0);
  });
}

TEST_F(LinkLoopTest, AWorkerThatRefusesAgainAndAgainHasFailed) {
  StartLink();
  TestHttp2Server server([](auto& call) { call.Reset(Http2Error::kRefusedStream); });
  EXPECT_THAT(AwaitEnd(AskOne(server.address())).status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(AwaitIdle());
  EXPECT_EQ(server.counts().requests, 4) << "once, and three times again";
}

// Servers cancel late calls. The cancel may arrive before the client's own timer has fired.
TEST_F(LinkLoopTest, AWorkerThatCancelsACallBehindItsDeadlineWasLate) {
  StartLink();
  TestHttp2Server server([](auto& call) { call.Reset(Http2Error::kCancel); });
  const CallRecord call = AwaitEnd(AskOne(server.address(), {.told_timeout = milliseconds(-1)}));
  EXPECT_THAT(call.status, HasCode(absl::StatusCode::kDeadlineExceeded));
}

}  // namespace
}  // namespace sluice
