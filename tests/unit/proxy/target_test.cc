#include "lib/proxy/target.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/proxy_loop_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Stream = Http2Peer::Stream;

class TargetTest : public ProxyLoopTest {
 protected:
  int64_t WantedWorkers() {
    int64_t wanted = 0;
    executor_.Await([&] { wanted = loop_->worker_table().CountReached().wanted; });
    return wanted;
  }
};

// --- Look-ups.

TEST_F(TargetTest, ALookUpThatNobodyWaitsForEnds) {
  StartProxy();
  TestHttp2Server worker(Says("!"));
  const auto client = NewClient();
  const Stream& first = client->Open(Head("slow.test:1"), FrameMessage("?"));
  const Stream& second = client->Open(Head("slow.test:1"), FrameMessage("?"));
  client->Flush();
  ASSERT_TRUE(Eventually([&] { return OpenQuestions("slow.test:1") == 1; })) << "one for both";
  client->session().Reset(first.id, Http2Error::kCancel);
  EXPECT_EQ(Call(*client, "127.0.0.1:1").substr(0, 2), "14") << "the reset is there";
  EXPECT_EQ(OpenQuestions("slow.test:1"), 1U);
  client->session().Reset(second.id, Http2Error::kCancel);
  client->Flush();
  EXPECT_TRUE(Eventually([&] { return OpenQuestions("slow.test:1") == 0; }));

  const Stream& third = client->Open(Head("slow.test:1"), FrameMessage("?"));
  client->Flush();
  ASSERT_TRUE(Eventually([&] { return OpenQuestions("slow.test:1") == 1; })) << "another one";
  SetName("slow.test:1", std::vector<std::string>{worker.address()});
  EXPECT_TRUE(Await({client.get()}, [&] { return third.closed.has_value(); }));
  EXPECT_EQ(third.status(), "0");
}

TEST_F(TargetTest, ALookUpEndsWithTheTunnelThatWaitsForIt) {
  StartProxy();
  {
    TestSocket socket = ConnectTo(listener_->address());
    socket.Send("CONNECT slow.test:1 HTTP/1.1\r\nHost: a\r\n\r\n");
    ASSERT_TRUE(Eventually([&] { return OpenQuestions("slow.test:1") == 1; }));
  }
  EXPECT_TRUE(Eventually([&] { return OpenQuestions("slow.test:1") == 0; }));
}

// --- Names with several addresses.

TEST_F(TargetTest, CallsTakeTheAddressesOfANameInTurn) {
  StartProxy();
  TestHttp2Server a(Says("!"));
  TestHttp2Server b(Says("!"));
  SetName("both.test:1", std::vector<std::string>{a.address(), b.address()});
  const auto client = NewClient();
  EXPECT_EQ(Call(*client, "both.test:1"), "OK");
  for (TestHttp2Server* server : {&a, &b}) {
    EXPECT_TRUE(server->Await([](const auto& counts) { return counts.connections == 1; })) << "before its turn";
  }
  ASSERT_TRUE(Eventually([&] { return Connected(a.address(), "both.test") && Connected(b.address(), "both.test"); }));
  const int before = a.counts().requests;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Call(*client, "both.test:1"), "OK");
  EXPECT_EQ(a.counts().requests - before, 5);
  EXPECT_EQ(a.counts().requests + b.counts().requests, 11);
}

TEST_F(TargetTest, ACallWhoseAddressRefusesGoesToAnother) {
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Answer(call.request()); });
  std::vector<std::string> addresses = {worker.address()};
  for (int i = 0; i < 3; ++i) addresses.push_back(AddressOfNobody().text);
  SetName("part.test:1", addresses);
  const auto client = NewClient();
  std::vector<const Stream*> calls;
  for (int i = 0; i < 8; ++i) {
    calls.push_back(&client->Open(Head("part.test:1", {{"sluice-block", "b"}, {"sluice-weight", "8"}}),
                                  FrameMessage(absl::StrCat("question ", i))));
  }
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().streams() == 0; }));
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(calls[i]->status(), "0") << calls[i]->Field("grpc-message");
    EXPECT_EQ(calls[i]->data, FrameMessage(absl::StrCat("question ", i)));
  }
  for (int i = 0; i < 8; ++i) EXPECT_EQ(Call(*client, "part.test:1"), "OK") << "they are left out from then on";
}

// The owner of a name may give it thousands of addresses.
TEST_F(TargetTest, FewAddressesOfANameAreDialledAtATime) {
  StartProxy();
  std::vector<std::unique_ptr<SilentAddress>> silent;
  std::vector<std::string> addresses;
  for (int i = 0; i < 30; ++i) {
    silent.push_back(std::make_unique<SilentAddress>());
    addresses.push_back(silent.back()->address().text);
  }
  SetName("many.test:1", addresses);
  const auto client = NewClient();
  for (int i = 0; i < 5; ++i) client->Open(Head("many.test:1"), FrameMessage("?"));
  client->Flush();
  EXPECT_TRUE(Eventually([&] { return ConnectedTo().size() == 8; }));
  TestHttp2Server worker(Says("!"));
  EXPECT_EQ(Call(*client, worker.address()), "OK");
  EXPECT_EQ(ConnectedTo().size(), 8 + 1) << "and the worker";
}

TEST_F(TargetTest, ACertificateIsThatOfTheNameWithoutTheDotAtItsEnd) {
  StartProxy();
  TestHttp2Server worker(Says("!"));
  SetName("dot.test.:1", std::vector<std::string>{worker.address()});
  const auto client = NewClient();
  EXPECT_EQ(Call(*client, "dot.test.:1"), "OK");
  EXPECT_TRUE(Connected(worker.address(), "dot.test"));
}

TEST_F(TargetTest, ANameOfWhichNoAddressAnswersIsUnavailable) {
  StartProxy();
  const std::vector<std::string> nobody = {AddressOfNobody().text, AddressOfNobody().text};
  SetName("gone.test:1", nobody);
  const auto client = NewClient();
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(Call(*client, "gone.test:1"),
                AllOf(StartsWith("14 "), AnyOf(HasSubstr(nobody[0]), HasSubstr(nobody[1]))));
  }
}

TEST_F(TargetTest, AWorkerThatLosesItsConnectionIsLeftOut) {
  StartProxy();
  TestHttp2Server a(Says("!"));
  auto b = std::make_unique<TestHttp2Server>(Says("!"));
  SetName("both.test:1", std::vector<std::string>{a.address(), b->address()});
  const auto client = NewClient();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Call(*client, "both.test:1"), "OK");
  const std::string lost = b->address();
  b.reset();
  ASSERT_TRUE(Eventually([&] { return !Connected(lost, "both.test"); }));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Call(*client, "both.test:1"), "OK");
}

TEST_F(TargetTest, AnAddressThatFailsGetsNoCallsForAWhile) {
  StartProxy();
  TestHttp2Server a(Says("!"));
  TestHttp2Server b([](TestHttp2Server::Call& call) { call.Fail(absl::InternalError("a bad disk")); });
  TestHttp2Server c(Says("!"));
  SetName("three.test:1", std::vector<std::string>{a.address(), b.address(), c.address()});
  const auto client = NewClient();
  for (int i = 0; i < 30; ++i) Call(*client, "three.test:1");
  const int before = b.counts().requests;
  EXPECT_LT(before, 10);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(Call(*client, "three.test:1"), "OK");
  EXPECT_EQ(b.counts().requests, before);
}

// With few calls to compare it with, more failures are needed.
TEST_F(TargetTest, OneOfTwoAddressesIsAvoidedOnceItHasFailed) {
  StartProxy();
  TestHttp2Server a(Says("!"));
  TestHttp2Server b([](TestHttp2Server::Call& call) { call.Fail(absl::InternalError("a bad disk")); });
  SetName("two.test:1", std::vector<std::string>{a.address(), b.address()});
  const auto client = NewClient();
  for (int i = 0; i < 40; ++i) Call(*client, "two.test:1");
  const int before = b.counts().requests;
  EXPECT_GE(before, 5);
  EXPECT_LE(before, 12);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Call(*client, "two.test:1"), "OK");
  EXPECT_EQ(b.counts().requests, before);
}

TEST_F(TargetTest, OneFamilyIsCalledWhileItCanBeReached) {
  StartProxy();
  TestHttp2Server worker(Says("!"));
  TestHttp2Server other(Says("!"));
  SetName("dual.test:1", std::vector<std::string>{worker.address(), "[::1]:1"});
  const auto client = NewClient();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Call(*client, "dual.test:1"), "OK");
  EXPECT_THAT(ConnectedTo(), ::testing::Each(worker.address()));
  SetName("localhost.test:1", std::vector<std::string>{"[::1]:1", worker.address(), other.address()});
  EXPECT_EQ(Call(*client, "localhost.test:1"), "OK") << "as one that listens on IPv4 alone";
  ASSERT_TRUE(Eventually(
      [&] { return Connected(worker.address(), "localhost.test") && Connected(other.address(), "localhost.test"); }));
  const int before = other.counts().requests;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Call(*client, "localhost.test:1"), "OK");
  EXPECT_EQ(other.counts().requests - before, 3) << "they take turns, too";
}

// RFC 8305. Both calls would wait 5 s for the first family otherwise.
TEST_F(TargetTest, AFamilyThatDoesNotRespondDelaysNoCallForLong) {
  StartProxy();
  TestHttp2Server worker(Says("!"));
  const SilentAddress silent("[::1]:0");
  for (const char* name : {"dual.test:1", "dual.test:2"}) {
    SetName(name, std::vector<std::string>{silent.address().text, worker.address()});
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(Call(*NewClient(), "dual.test:1"), "OK");
  TestSocket socket = ConnectTo(listener_->address());
  socket.Send("CONNECT dual.test:2 HTTP/1.1\r\n\r\n");
  EXPECT_THAT(socket.ReceiveUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  Http2Peer client(std::move(socket));
  EXPECT_EQ(Call(client, "any.name"), "OK");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST_F(TargetTest, ASearchForAFamilyEndsWithTheCallThatWaitsForIt) {
  StartProxy();
  const SilentAddress silent("[::1]:0");
  const SilentAddress other("127.0.0.1:0");
  SetName("dual.test:1", std::vector<std::string>{silent.address().text, other.address().text});
  const auto client = NewClient();
  const Stream& call = client->Open(Head("dual.test:1"), FrameMessage("?"));
  client->Flush();
  ASSERT_TRUE(Eventually([&] { return ConnectedTo().size() == 1; }));
  client->session().Reset(call.id, Http2Error::kCancel);
  client->Flush();
  EXPECT_TRUE(Eventually([&] {
    size_t calls = 1;
    executor_.Await([&] { calls = proxy_->calls(); });
    return calls == 0;
  }));
  executor_.Await([&] { names_.PutForward(std::chrono::seconds(1)); });
  EXPECT_EQ(Call(*client, "127.0.0.1:1").substr(0, 2), "14");
  EXPECT_THAT(ConnectedTo(), ::testing::Not(::testing::Contains(other.address().text)));
}

// Neither family responds: the calls end as those to one address do.
TEST_F(TargetTest, ASearchForAFamilyEndsAfterATime) {
  StartProxy();
  const SilentAddress silent("[::1]:0");
  const SilentAddress other("127.0.0.1:0");
  SetName("dual.test:1", std::vector<std::string>{silent.address().text, other.address().text});
  const auto client = NewClient();
  client->Open(Head("dual.test:1"), FrameMessage("?"));
  client->Flush();
  ASSERT_TRUE(Eventually([&] { return OpenQuestions("dual.test:1") == 0 && ConnectedTo().size() == 1; }));
  EXPECT_EQ(WantedWorkers(), 0);
  executor_.Await([&] { names_.PutForward(std::chrono::seconds(2)); });
  EXPECT_TRUE(Eventually([&] { return WantedWorkers() > 0; }));
}

TEST_F(TargetTest, AnAddressThatMayNotBeCalledSaysNothingAboutTheFamily) {
  StartProxy();
  TestHttp2Server worker(Says("!"));
  SetName("dual.test:1", std::vector<std::string>{"[fd00::1]:1", "8.8.8.8:1", worker.address()});
  const auto client = NewClient();
  EXPECT_EQ(Call(*client, "dual.test:1"), "OK");
  EXPECT_THAT(ConnectedTo(), ::testing::Each(worker.address()));
}

TEST_F(TargetTest, ANameThatIsCalledIsLookedUpAgain) {
  StartProxy();
  TestHttp2Server before(Says("!"));
  TestHttp2Server after(Says("!"));
  SetName("moves.test:1", std::vector<std::string>{before.address()});
  const auto client = NewClient();
  EXPECT_EQ(Call(*client, "moves.test:1"), "OK");
  SetName("moves.test:1", absl::UnavailableError("no name server"));
  const auto later = [&] { executor_.Await([&] { names_.PutForward(std::chrono::seconds(5)); }); };
  for (int i = 0; i < 3; ++i, later()) EXPECT_EQ(Call(*client, "moves.test:1"), "OK") << "its workers are still there";
  SetName("moves.test:1", std::vector<std::string>{after.address()});
  EXPECT_TRUE(Eventually([&] {
    later();
    EXPECT_EQ(Call(*client, "moves.test:1"), "OK");
    return after.counts().requests == 1;
  }));
}

// Otherwise the proxy would connect, and reconnect, to a worker that the client itself reaches by TLS.
TEST_F(TargetTest, ATunnelAloneHasNoWorker) {
  StartProxy();
  TestHttp2Server worker(Says("!"));
  TestSocket socket = ConnectTo(listener_->address());
  socket.Send(absl::StrCat("CONNECT ", worker.address(), " HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_THAT(socket.ReceiveUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(ConnectedTo().size(), 1U) << "that of the tunnel";
  EXPECT_EQ(WantedWorkers(), 0) << "an alert would wait for a connection that nobody makes";
  Http2Peer client(std::move(socket));
  EXPECT_EQ(Call(client, "any.name"), "OK");
  EXPECT_EQ(WantedWorkers(), 1);
}

// Otherwise a client could make the proxy try a thousand dead addresses for ten minutes.
TEST_F(TargetTest, AnAddressThatCannotBeReachedIsTriedNoLongerThanItIsCalled) {
  StartProxy();
  TestHttp2Server worker(Says("!"));
  const auto client = NewClient();
  EXPECT_EQ(Call(*client, worker.address()), "OK");
  const std::string nobody = AddressOfNobody().text;
  EXPECT_EQ(Call(*client, nobody).substr(0, 2), "14");
  const auto attempts = [&] {
    const std::vector<std::string> connected = ConnectedTo();
    return std::count(connected.begin(), connected.end(), nobody);
  };
  const auto later = [&] { executor_.Await([&] { names_.PutForward(std::chrono::seconds(6)); }); };
  EXPECT_TRUE(Eventually([&] {
    const auto before = attempts();
    for (int i = 0; i < 5; ++i) later();
    return attempts() == before;
  }));
  EXPECT_EQ(std::ranges::count(ConnectedTo(), worker.address()), 1) << "a worker that was reached stays connected";
  EXPECT_EQ(Call(*client, nobody).substr(0, 2), "14");
}

// --- Room for targets.

TEST_F(TargetTest, NamesThatLeadNowhereMakeRoomForOthers) {
  StartProxy({.max_targets = 3});
  TestHttp2Server worker(Says("!"));
  const auto client = NewClient();
  for (int i = 0; i < 10; ++i) {
    const std::string name = absl::StrCat("junk-", i, ".test:1");
    SetName(name, absl::NotFoundError("no such name"));
    EXPECT_EQ(Call(*client, name).substr(0, 2), "14");
  }
  EXPECT_EQ(Call(*client, AddressOfNobody().text).substr(0, 2), "14");
  EXPECT_EQ(Call(*client, worker.address()), "OK");
}

TEST_F(TargetTest, TargetsInUseMakeNoRoom) {
  StartProxy({.max_targets = 2});
  TestHttp2Server worker(Says("!"));
  const auto client = NewClient();
  EXPECT_EQ(Call(*client, worker.address()), "OK");
  const Stream& waiting = client->Open(Head("slow.test:1"), FrameMessage("?"));
  EXPECT_THAT(Call(*client, "127.0.0.1:1"),
              HasSubstr("limits.targets is 2, and the clients of group \"clients\" have 2 of them"));
  EXPECT_FALSE(waiting.closed.has_value());
  EXPECT_EQ(Call(*client, worker.address()), "OK");
  SetName("slow.test:1", absl::NotFoundError("no such name"));
  EXPECT_TRUE(Await({client.get()}, [&] { return waiting.closed.has_value(); }));
  executor_.Await([&] { names_.PutForward(std::chrono::seconds(1)); });
  EXPECT_EQ(Call(*client, "127.0.0.1:1").substr(0, 2), "14") << "there is room again";
  EXPECT_EQ(worker.counts().connections, 1) << "that of a worker stays";
}

}  // namespace
}  // namespace sluice::testing
