// One client that takes all that it can get of a limit, beside others.
#include "lib/proxy/client_groups.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/proxy/proxy_loop_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ClientGroupsTest : public ProxyLoopTest {
 protected:
  static constexpr uint32_t kGreedy = 1;
  static constexpr uint32_t kModest = 2;

  // Returns a client of this user.
  std::unique_ptr<Http2Peer> ClientOf(uint32_t user) {
    executor_.Await([&] { user_ = user; });
    auto client = NewClient();
    EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 1000; }));
    return client;
  }
  std::vector<const Http2Peer::Stream*> Open(Http2Peer& client, const std::string& target, int calls) {
    std::vector<const Http2Peer::Stream*> opened;
    for (int i = 0; i < calls; ++i) opened.push_back(&client.Open(Head(target), FrameMessage("?")));
    return opened;
  }
  static size_t Closed(const std::vector<const Http2Peer::Stream*>& calls) {
    size_t closed = 0;
    for (const auto* call : calls) closed += call->closed.has_value() ? 1 : 0;
    return closed;
  }
  double Refusals(const std::string& reason) const {
    return SumOf(registry_, "sluice_proxy_group_refusals_total", "reason", reason);
  }
  static std::string Message(const Http2Peer::Stream& call) { return call.Field("grpc-message"); }

  TestHttp2Server hung_{[](TestHttp2Server::Call&) {}};
  TestHttp2Server healthy_{Says("!")};
};

TEST_F(ClientGroupsTest, CallsOfTheGreedyGiveWayToThoseOfOthers) {
  StartProxy({.max_calls = 40});
  const auto greedy = ClientOf(kGreedy);
  const auto all = Open(*greedy, hung_.address(), 40);
  EXPECT_TRUE(Await({greedy.get()}, [&] { return hung_.counts().requests == 40; })) << "it may have all of them";
  const auto& more = greedy->Open(Head(hung_.address()), FrameMessage("?"));
  EXPECT_TRUE(Await({greedy.get()}, [&] { return more.closed.has_value(); }));
  EXPECT_EQ(more.status(), "8");
  EXPECT_THAT(Message(more), AllOf(HasSubstr("limits.calls is 40"), HasSubstr("\"uid 1\" have 40 of them")));
  EXPECT_THAT(more.Field("grpc-retry-pushback-ms"), ::testing::MatchesRegex("[0-9]+"));
  EXPECT_EQ(Refusals("share"), 1);

  const auto modest = ClientOf(kModest);
  const auto own = Open(*modest, hung_.address(), 20);
  EXPECT_TRUE(Await({greedy.get(), modest.get()}, [&] { return hung_.counts().requests == 60 && Closed(all) == 20; }));
  EXPECT_EQ(Closed(own), 0u) << "half of the limit is its share";
  EXPECT_EQ(Refusals("gave_way"), 20);
  EXPECT_THAT(Message(*all.back()), AllOf(HasSubstr("limits.calls is 40"), HasSubstr("\"uid 1\""))) << "the newest";
  EXPECT_FALSE(all.front()->closed.has_value());
  const auto& too_many = modest->Open(Head(hung_.address()), FrameMessage("?"));
  EXPECT_TRUE(Await({greedy.get(), modest.get()}, [&] { return too_many.closed.has_value(); }));
  EXPECT_EQ(too_many.status(), "8");
  EXPECT_EQ(Closed(all), 20u);
}

TEST_F(ClientGroupsTest, ConnectionsOfTheGreedyGiveWayToThoseOfOthers) {
  StartProxy({.max_connections = 8});
  std::vector<std::unique_ptr<Http2Peer>> greedy;
  for (int i = 0; i < 8; ++i) {
    greedy.push_back(ClientOf(kGreedy));
    Open(*greedy.back(), hung_.address(), 1);
    greedy.back()->Flush();
    ASSERT_TRUE(hung_.AwaitRequests(i + 1)) << "none of them is idle";
  }
  std::vector<std::unique_ptr<Http2Peer>> modest;
  for (int i = 0; i < 4; ++i) {
    modest.push_back(ClientOf(kModest));
    EXPECT_EQ(Call(*modest.back(), healthy_.address()), "OK") << i;
  }
  for (const auto& client : modest) EXPECT_EQ(Call(*client, healthy_.address()), "OK");
  EXPECT_EQ(Refusals("gave_way"), 4);
  std::vector<bool> over;
  EXPECT_TRUE(Eventually([&] {
    over.clear();
    for (const auto& client : greedy) client->Pump();
    for (const auto& client : greedy) over.push_back(client->over());
    return over == std::vector<bool>({false, false, false, false, true, true, true, true});
  })) << ::testing::PrintToString(over);
  // Its own idle connection makes room for the next one.
  modest.push_back(ClientOf(kModest));
  EXPECT_EQ(Call(*modest.back(), healthy_.address()), "OK");
  EXPECT_TRUE(Await({modest[0].get()}, [&] { return modest[0]->over(); }));
}

TEST_F(ClientGroupsTest, StrangersWhoOnlyConnectEvictNobodyWhoIsKnown) {
  StartProxy({.max_connections = 20});
  const auto known = NewClient();
  EXPECT_EQ(Call(*known, healthy_.address()), "OK");
  std::vector<TestSocket> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(ConnectTo(listener_->address()));
  EXPECT_TRUE(Eventually([&] {
    size_t connections = 0;
    executor_.Await([&] { connections = proxy_->connections(); });
    return SumOf(registry_, "sluice_proxy_connections_total", "kind", "refused") == 100 - 16 && connections == 17;
  }));
  EXPECT_EQ(Call(*known, healthy_.address()), "OK");
  const auto other = NewClient();
  EXPECT_EQ(Call(*other, healthy_.address()), "OK") << "a client that begins at once needs no luck";
}

TEST_F(ClientGroupsTest, TargetsOfTheGreedyLeaveRoomForThoseOfOthers) {
  StartProxy({.max_targets = 10});
  const auto greedy = ClientOf(kGreedy);
  const auto modest = ClientOf(kModest);
  std::vector<const Http2Peer::Stream*> calls;
  for (int i = 0; i < 10; ++i) calls.push_back(&greedy->Open(Head(absl::StrCat("h", i, ".test:1")), FrameMessage("?")));
  const auto& eleventh = greedy->Open(Head("another.test:1"), FrameMessage("?"));
  EXPECT_TRUE(Await({greedy.get()}, [&] { return eleventh.closed.has_value(); }));
  EXPECT_THAT(Message(eleventh), HasSubstr("limits.targets is 10"));
  EXPECT_EQ(Call(*modest, healthy_.address()), "OK");
}

// A name server that does not respond holds a thread for each name.
TEST_F(ClientGroupsTest, NamesOfTheGreedyDoNotHoldUpThoseOfOthers) {
  StartProxy();
  const auto greedy = ClientOf(kGreedy);
  const auto modest = ClientOf(kModest);
  std::vector<const Http2Peer::Stream*> calls;
  for (int i = 0; i < 20; ++i) calls.push_back(&greedy->Open(Head(absl::StrCat("h", i, ".test:1")), FrameMessage("?")));
  const auto questions = [&] {
    size_t all = 0;
    for (int i = 0; i < 20; ++i) all += OpenQuestions(absl::StrCat("h", i, ".test:1"));
    return all;
  };
  EXPECT_TRUE(Await({greedy.get()}, [&] { return SumOf(registry_, "sluice_proxy_calls", "", "") == 20; }));
  EXPECT_EQ(questions(), LookUpTurns::kAtOnce);
  modest->Open(Head("modest.test:1"), FrameMessage("?"));
  EXPECT_TRUE(Await({modest.get()}, [&] { return OpenQuestions("modest.test:1") == 1; }));
  // Each answer lets the next name begin, and so does a client that gives up.
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(Await({greedy.get()}, [&] { return OpenQuestions(absl::StrCat("h", i, ".test:1")) == 1; })) << i;
    if (i % 2 == 0) SetName(absl::StrCat("h", i, ".test:1"), absl::NotFoundError("no such name"));
    if (i % 2 == 1) greedy->session().Reset(calls[i]->id, Http2Error::kCancel);
  }
  EXPECT_TRUE(Await({greedy.get()}, [&] { return Closed(calls) == 20 && questions() == 0; }));
}

TEST_F(ClientGroupsTest, WhatStrangersSendBeforeTheyBeginIsBounded) {
  StartProxy({.max_calls = 16, .max_held_bytes = 64 << 10});
  const auto known = NewClient();
  EXPECT_EQ(Call(*known, healthy_.address()), "OK");
  const auto held = [&] { return SumOf(registry_, "sluice_proxy_held_request_bytes", "", ""); };
  std::vector<TestSocket> strangers;
  for (int i = 0; i < 6; ++i) {
    strangers.push_back(ConnectTo(listener_->address()));
    strangers.back().Send(absl::StrCat("CONNECT a:1 HTTP/1.1\r\nx: ", std::string(9 << 10, 'x')));
  }
  EXPECT_TRUE(Eventually([&] { return held() > 6 * (9 << 10); })) << held();
  for (int i = 0; i < 4; ++i) {
    strangers.push_back(ConnectTo(listener_->address()));
    strangers.back().Send(absl::StrCat("CONNECT a:1 HTTP/1.1\r\nx: ", std::string(9 << 10, 'x')));
  }
  EXPECT_EQ(strangers.front().ReceiveAll(), "") << "it has waited for the longest time";
  EXPECT_LE(held(), 64 << 10);
  EXPECT_EQ(Call(*known, healthy_.address()), "OK");
}

// 40 KB of fields may be a few hundred bytes on the wire.
TEST_F(ClientGroupsTest, HeadersThatHaveArrivedInPartCount) {
  StartProxy();
  const TestSocket socket = ConnectTo(listener_->address());
  HeaderList head = Head("w:1");
  for (int i = 0; i < 10; ++i) head.push_back({absl::StrCat("x-", i), std::string(4000, 'x')});
  const std::string block = raw::HeaderBlock(head);
  std::string frames = raw::Frame(raw::kHeaders, raw::kNone, 1, block.substr(0, 16'000));
  for (size_t at = 16'000; at < block.size(); at += 16'000) {
    frames += raw::Frame(raw::kContinuation, raw::kNone, 1, block.substr(at, 16'000));
  }
  socket.Send(absl::StrCat(raw::kPreface, raw::Settings(), frames));
  EXPECT_TRUE(Eventually([&] { return SumOf(registry_, "sluice_proxy_held_request_bytes", "", "") > 40'000; }));
}

TEST_F(ClientGroupsTest, TheCapOfAnEntryHoldsWhileThereIsRoom) {
  ClientPolicies::Group group{.users = {kGreedy}, .workers = {"127.0.0.0/8"}};
  group.share = {.name = "batch", .calls = 3};
  StartProxy();
  executor_.Await(
      [&] { proxy_->Reconfigure(*ClientPolicies::Create({std::string("127.0.0.0/8")}, {group}), proxy_->options()); });
  const auto greedy = ClientOf(kGreedy);
  const auto calls = Open(*greedy, hung_.address(), 4);
  EXPECT_TRUE(Await({greedy.get()}, [&] { return Closed(calls) == 1; }));
  EXPECT_EQ(calls.back()->status(), "8");
  EXPECT_THAT(Message(*calls.back()), AllOf(HasSubstr("group \"batch\" have 3 calls"), HasSubstr("limits.calls")));
  EXPECT_EQ(Refusals("cap"), 1);
}

TEST_F(ClientGroupsTest, MetricsShowTheUseOfEachGroupBesideItsShare) {
  StartProxy({.max_calls = 40});
  const auto greedy = ClientOf(kGreedy);
  Open(*greedy, hung_.address(), 5);
  greedy->Flush();
  ASSERT_TRUE(hung_.AwaitRequests(5));
  EXPECT_TRUE(Eventually([&] {
    return SumOf(registry_, "sluice_proxy_group_used", "group", "uid 1") >= 7;  // a connection, calls, a target
  }));
  EXPECT_GE(SumOf(registry_, "sluice_proxy_group_share", "group", "uid 1"), 40);
}

}  // namespace
}  // namespace sluice::testing
