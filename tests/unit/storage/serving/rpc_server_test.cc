#include "lib/storage/serving/rpc_server.h"

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sluice/v1/probe_service.grpc.pb.h"
#include "sluice/v1/sru_service.grpc.pb.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/socket_address.h"
#include "tests/eventually.h"
#include "tests/has_code.h"
#include "tests/unit/net/silent_listener.h"
#include "tests/unit/storage/serving/silent_client.h"
#include "tests/unit/storage/stripe/striped_folder.h"

namespace sluice {
namespace {

using testing::Eventually;
using testing::HasCode;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing::SilentClient;
using testing::SilentListener;

// A call that blocks until the test releases or cancels it.
class HeldService final : public v1::SruService::Service {
 public:
  grpc::Status ReadManifest(grpc::ServerContext* context, const v1::ReadManifestRequest*,
                            v1::ReadManifestResponse*) override {
    entered.Notify();
    while (!let_go.WaitForNotificationWithTimeout(absl::Milliseconds(1))) {
      if (context->IsCancelled()) {
        cancelled.Notify();
        return grpc::Status::CANCELLED;
      }
    }
    return grpc::Status::OK;
  }

  absl::Notification entered;
  absl::Notification let_go;
  absl::Notification cancelled;
};

class RpcServerTest : public ::testing::Test {
 protected:
  static RpcServer::Options OnLoopback() { return {.listen = {"127.0.0.1:0"}}; }

  grpc::Status Call(const std::string& address) {
    const auto stub = v1::SruService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(testing::kPatience));
    v1::ReadManifestResponse response;
    return stub->ReadManifest(&context, {}, &response);
  }

  HeldService service_;
};

TEST_F(RpcServerTest, TakesAFreePortForPortZero) {
  service_.let_go.Notify();
  const auto server = RpcServer::Start({.listen = {"127.0.0.1:0", "localhost:0"}}, {&service_});
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_EQ((*server)->addresses().size(), 2u);
  EXPECT_THAT((*server)->addresses()[0], MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
  EXPECT_THAT((*server)->addresses()[1], MatchesRegex("localhost:[1-9][0-9]*"));
  EXPECT_TRUE(Call((*server)->addresses()[0]).ok());
}

TEST_F(RpcServerTest, ServesSeveralServices) {
  class EmptyProbes final : public v1::ProbeService::Service {
    grpc::Status Probe(grpc::ServerContext*, const v1::ProbeRequest*, v1::ProbeResponse*) override {
      return grpc::Status::OK;
    }
  };
  service_.let_go.Notify();
  EmptyProbes probes;
  const auto server = RpcServer::Start(OnLoopback(), {&service_, &probes});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(Call((*server)->addresses()[0]).ok());
  const auto stub =
      v1::ProbeService::NewStub(grpc::CreateChannel((*server)->addresses()[0], grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::ProbeResponse response;
  EXPECT_TRUE(stub->Probe(&context, {}, &response).ok());
}

TEST_F(RpcServerTest, ServesOnUnixSocketsAndNamesThemAsGiven) {
  service_.let_go.Notify();
  testing::TemporaryFolder folder;
  for (const std::string& address :
       {"unix:" + (folder.path() / "socket").string(), std::string("unix-abstract:s-test")}) {
    const auto server = RpcServer::Start({.listen = {address}}, {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_EQ((*server)->addresses()[0], address);
  }
}

TEST_F(RpcServerTest, ABusyPortIsUnavailableAndNamesTheAddress) {
  SilentListener taken;
  const auto server = RpcServer::Start({.listen = {"127.0.0.1:0", taken.address()}}, {&service_});
  EXPECT_THAT(server.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(server.status().message()), HasSubstr(taken.address()));
}

TEST_F(RpcServerTest, TwoServersDoNotShareAPort) {
  const auto first = RpcServer::Start(OnLoopback(), {&service_});
  ASSERT_TRUE(first.ok());
  HeldService other;
  const auto second = RpcServer::Start({.listen = {(*first)->addresses()[0]}}, {&other});
  EXPECT_THAT(second.status(), HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(RpcServerTest, AnAddressOfAnotherMachineIsUnavailable) {
  EXPECT_THAT(RpcServer::Start({.listen = {"192.0.2.1:7000"}}, {&service_}).status(),
              HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(RpcServerTest, WhatIsNoAddressIsInvalid) {
  EXPECT_THAT(RpcServer::Start({.listen = {"shards:7000"}}, {&service_}).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
}

// A server in a process that may open 100 more file descriptors. Each connection takes one for the client and one for
// the server.
class FewDescriptorsTest : public RpcServerTest {
 protected:
  void SetUp() override {
    service_.let_go.Notify();
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(Lowest()) + 100;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    RpcServer::Options options = OnLoopback();
    options.on_refused = [this](const std::string& peer, absl::string_view why) {
      EXPECT_THAT(peer, HasSubstr("127.0.0.1:"));
      if (absl::StrContains(why, "descriptors")) ++refused_;
    };
    auto server = RpcServer::Start(options, {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    CloseClients();
    setrlimit(RLIMIT_NOFILE, &before_);
  }

  // Returns the lowest free descriptor.
  static int Lowest() {
    const int lowest = dup(STDIN_FILENO);
    if (lowest >= 0) close(lowest);
    return lowest;
  }
  // Connects a client that begins HTTP/2, or sends nothing. Returns false if there is no descriptor for it.
  bool Connect(const std::string& first = absl::StrCat(raw::kPreface, raw::Settings())) {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    if (client < 0) return false;
    clients_.push_back(client);
    const auto address = *ParseSocketAddress(server_->addresses()[0], SocketUse::kConnect);
    EXPECT_EQ(connect(client, address.data(), static_cast<socklen_t>(address.size())), 0);
    (void)send(client, first.data(), first.size(), MSG_NOSIGNAL);  // fails if the server has closed the connection
    return true;
  }
  // Returns the events of a client's socket, or 0 if there is none in time.
  static int16_t Await(int client, int16_t events) {
    pollfd awaited{.fd = client, .events = events, .revents = 0};
    poll(&awaited, 1, static_cast<int>(absl::ToInt64Milliseconds(testing::kPatience)));
    return awaited.revents;
  }
  void CloseClients() {
    for (const int client : std::exchange(clients_, {})) close(client);
  }

  rlimit before_{};
  std::atomic<int> refused_ = 0;
  std::unique_ptr<RpcServer> server_;
  std::vector<int> clients_;
};

// gRPC's own listener stops for good here.
TEST_F(FewDescriptorsTest, ServesAgainAfterTheyRanOut) {
  while (Connect()) {
  }
  CloseClients();
  EXPECT_TRUE(Call(server_->addresses()[0]).ok());
}

TEST_F(FewDescriptorsTest, ClosesConnectionsThatWouldTakeTheLast) {
  while (refused_ == 0) {
    ASSERT_TRUE(Connect()) << "the server leaves none";
    // The server sends SETTINGS or closes the connection.
    ASSERT_NE(Await(clients_.back(), POLLIN), 0);
  }
  EXPECT_GT(clients_.size(), 10u);
  CloseClients();
  EXPECT_TRUE(Call(server_->addresses()[0]).ok());
}

// The oldest silent connections make room when the descriptors run out.
TEST_F(FewDescriptorsTest, SilentConnectionsTakeNoPlaceFromClients) {
  constexpr size_t kSilent = 60;
  for (size_t i = 0; i < kSilent; ++i) ASSERT_TRUE(Connect(/*first=*/""));
  for (size_t i = 0; i < kSilent / 4; ++i) EXPECT_NE(Await(clients_[i], POLLRDHUP) & POLLRDHUP, 0) << i;
  EXPECT_EQ(refused_, 0);
  EXPECT_TRUE(Call(server_->addresses()[0]).ok());
}

TEST_F(FewDescriptorsTest, AClientThatHasBegunStays) {
  ASSERT_TRUE(Connect());
  ASSERT_EQ(Await(clients_[0], POLLIN), POLLIN) << "the server sends SETTINGS";
  constexpr size_t kSilent = 60;
  for (size_t i = 0; i < kSilent; ++i) ASSERT_TRUE(Connect(/*first=*/""));
  EXPECT_NE(Await(clients_[1], POLLRDHUP) & POLLRDHUP, 0);
  pollfd begun{.fd = clients_[0], .events = POLLRDHUP, .revents = 0};
  EXPECT_EQ(poll(&begun, 1, 0), 0);
}

TEST_F(FewDescriptorsTest, AClientThatBeginsLateIsServed) {
  ASSERT_TRUE(Connect(/*first=*/""));
  const std::string preface = raw::kPreface;
  ASSERT_EQ(send(clients_[0], preface.data(), preface.size(), MSG_NOSIGNAL), static_cast<ssize_t>(preface.size()));
  EXPECT_EQ(Await(clients_[0], POLLIN), POLLIN);
}

TEST_F(FewDescriptorsTest, ADrainClosesSilentConnections) {
  ASSERT_TRUE(Connect(/*first=*/""));
  server_->Drain();
  EXPECT_NE(Await(clients_[0], POLLRDHUP) & POLLRDHUP, 0);
}

TEST_F(FewDescriptorsTest, SaysThatItCannotTakeClients) {
  EXPECT_TRUE(server_->CheckRoom().ok()) << server_->CheckRoom();
  while (refused_ == 0) {
    ASSERT_TRUE(Connect());
    ASSERT_NE(Await(clients_.back(), POLLIN), 0);
  }
  EXPECT_THAT(server_->CheckRoom(), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(server_->CheckRoom().message()), HasSubstr("file descriptors"));
  CloseClients();
  EXPECT_TRUE(Eventually([this] { return server_->CheckRoom().ok(); }));
}

// The client's host has vanished: nothing acknowledges the PING.
TEST_F(RpcServerTest, EndsTheCallsOfAClientThatVanishes) {
  RpcServer::Options options = OnLoopback();
  options.keepalive_time = options.keepalive_timeout = absl::Milliseconds(100);
  const auto server = RpcServer::Start(options, {&service_});
  ASSERT_TRUE(server.ok());
  const SilentClient client((*server)->addresses()[0]);
  client.Call("/sluice.v1.SruService/ReadManifest", v1::ReadManifestRequest());
  ASSERT_TRUE(service_.entered.WaitForNotificationWithTimeout(testing::kPatience));
  EXPECT_TRUE(service_.cancelled.WaitForNotificationWithTimeout(testing::kPatience));
}

// The PING cannot be sent, since bytes before it wait for room at the client.
TEST_F(RpcServerTest, EndsTheCallsOfAClientWhoseKernelTakesNothing) {
  class EndlessService final : public v1::SruService::CallbackService {
   public:
    grpc::ServerWriteReactor<v1::ReadSruResponse>* ReadSru(grpc::CallbackServerContext*,
                                                           const v1::ReadSruRequest*) override {
      return new Call(ended);
    }
    absl::Notification ended;

   private:
    class Call final : public grpc::ServerWriteReactor<v1::ReadSruResponse> {
     public:
      explicit Call(absl::Notification& ended) : ended_(ended) {
        response_.mutable_data()->resize(64 << 10);
        StartWrite(&response_);
      }
      void OnWriteDone(bool ok) override { ok ? StartWrite(&response_) : Finish(grpc::Status::OK); }
      void OnDone() override {
        ended_.Notify();
        delete this;
      }

     private:
      v1::ReadSruResponse response_;
      absl::Notification& ended_;
    };
  };
  EndlessService service;
  RpcServer::Options options = OnLoopback();
  options.keepalive_time = options.keepalive_timeout = absl::Milliseconds(100);
  const auto server = RpcServer::Start(options, {&service});
  ASSERT_TRUE(server.ok());
  const SilentClient client((*server)->addresses()[0]);
  client.Call("/sluice.v1.SruService/ReadSru", v1::ReadSruRequest(), /*window_bytes=*/INT32_MAX);
  EXPECT_TRUE(service.ended.WaitForNotificationWithTimeout(testing::kPatience));
}

TEST_F(RpcServerTest, ServesAClientThatAnswersPings) {
  RpcServer::Options options = OnLoopback();
  options.keepalive_time = options.keepalive_timeout = absl::Milliseconds(20);
  const auto server = RpcServer::Start(options, {&service_});
  ASSERT_TRUE(server.ok());
  grpc::Status status;
  std::thread client([&] { status = Call((*server)->addresses()[0]); });
  ASSERT_TRUE(service_.entered.WaitForNotificationWithTimeout(testing::kPatience));
  EXPECT_FALSE(service_.cancelled.WaitForNotificationWithTimeout(absl::Milliseconds(300)));
  service_.let_go.Notify();
  client.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(RpcServerTest, EndsTheConnectionOfAClientThatSendsTooManyPings) {
  service_.let_go.Notify();
  const auto server = RpcServer::Start(OnLoopback(), {&service_});
  ASSERT_TRUE(server.ok());
  const SilentClient client((*server)->addresses()[0]);
  std::string pings;  // in one write, since the server may close the connection at the third
  for (int i = 0; i < 10; ++i) pings += raw::Ping();
  client.Send(pings);
  EXPECT_TRUE(client.WaitUntilClosed());
}

TEST_F(RpcServerTest, TellsClientsItsBounds) {
  const auto server = RpcServer::Start(OnLoopback(), {&service_});
  ASSERT_TRUE(server.ok());
  const SilentClient client((*server)->addresses()[0]);
  const std::optional<raw::ReadFrame> settings = client.Receive();
  ASSERT_TRUE(settings.has_value() && settings->type == raw::kSettings);
  std::map<uint32_t, uint32_t> bounds;
  for (size_t i = 0; i < settings->payload.size(); i += 6) bounds[settings->number(i) >> 16] = settings->number(i + 2);
  EXPECT_EQ(bounds[raw::kMaxConcurrentStreams], 1024u);
  EXPECT_EQ(bounds[raw::kMaxHeaderListSize], 8192u);
}

TEST_F(RpcServerTest, EndsTheConnectionOfAClientThatOpensTooManyStreams) {
  RpcServer::Options options = OnLoopback();
  options.keepalive_time = absl::Hours(1);  // this client answers no PING
  const auto server = RpcServer::Start(options, {&service_});
  ASSERT_TRUE(server.ok());
  const SilentClient client((*server)->addresses()[0]);
  ASSERT_EQ(client.Receive().value().type, raw::kSettings);
  client.Send(raw::SettingsAck());
  std::string calls;  // none sends its request
  for (int32_t i = 0; i < 1025; ++i) {
    calls += raw::Headers(2 * i + 1, ToHeaders({.path = "/sluice.v1.SruService/ReadManifest", .authority = "server"}));
  }
  client.Send(calls);
  EXPECT_TRUE(client.WaitUntilClosed());
}

TEST_F(RpcServerTest, RefusesHeadersAboveTheBound) {
  service_.let_go.Notify();
  const auto server = RpcServer::Start(OnLoopback(), {&service_});
  ASSERT_TRUE(server.ok());
  const SilentClient client((*server)->addresses()[0]);
  ASSERT_EQ(client.Receive().value().type, raw::kSettings);
  client.Send(raw::SettingsAck());
  HeaderList headers = ToHeaders({.path = "/sluice.v1.SruService/ReadManifest", .authority = "server"});
  headers.push_back({"large", std::string(9000, 'x')});
  client.Send(raw::Headers(1, headers));
  client.Send(raw::Data(1, FrameMessage(""), /*end_stream=*/true));
  EXPECT_TRUE(client.WaitUntilClosed());
  EXPECT_FALSE(service_.entered.HasBeenNotified());
}

TEST_F(RpcServerTest, DrainWaitsForACallUnderWay) {
  const auto server = RpcServer::Start(OnLoopback(), {&service_});
  ASSERT_TRUE(server.ok());
  grpc::Status status;
  std::thread client([&] { status = Call((*server)->addresses()[0]); });
  ASSERT_TRUE(service_.entered.WaitForNotificationWithTimeout(testing::kPatience));
  absl::Notification drained;
  std::thread drain([&] {
    (*server)->Drain();
    drained.Notify();
  });
  EXPECT_FALSE(drained.WaitForNotificationWithTimeout(absl::Milliseconds(200)));
  service_.let_go.Notify();
  EXPECT_TRUE(drained.WaitForNotificationWithTimeout(testing::kPatience));
  drain.join();
  client.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(RpcServerTest, DrainCancelsWhatIsLeftWhenItsTimeIsOver) {
  RpcServer::Options options = OnLoopback();
  options.drain_timeout = absl::Milliseconds(100);
  const auto server = RpcServer::Start(options, {&service_});
  ASSERT_TRUE(server.ok());
  grpc::Status status;
  std::thread client([&] { status = Call((*server)->addresses()[0]); });
  ASSERT_TRUE(service_.entered.WaitForNotificationWithTimeout(testing::kPatience));
  (*server)->Drain();
  EXPECT_TRUE(service_.cancelled.HasBeenNotified());
  client.join();
  EXPECT_FALSE(status.ok());
}

TEST_F(RpcServerTest, ADrainTimeWithoutEndIsNoDrainTimeAtAllForAnIdleServer) {
  RpcServer::Options options = OnLoopback();
  options.drain_timeout = absl::InfiniteDuration();
  const auto server = RpcServer::Start(options, {&service_});
  ASSERT_TRUE(server.ok());
  (*server)->Drain();
  (*server)->Drain();
}

TEST_F(RpcServerTest, ThePortIsFreeAfterTheDrain) {
  const auto first = RpcServer::Start(OnLoopback(), {&service_});
  ASSERT_TRUE(first.ok());
  (*first)->Drain();
  const auto second = RpcServer::Start({.listen = {(*first)->addresses()[0]}}, {&service_});
  EXPECT_TRUE(second.ok()) << second.status();
}

TEST_F(RpcServerTest, RefusesARequestLargerThanItsBound) {
  service_.let_go.Notify();
  RpcServer::Options options = OnLoopback();
  options.max_request_bytes = 100;
  const auto server = RpcServer::Start(options, {&service_});
  ASSERT_TRUE(server.ok());
  const auto stub =
      v1::SruService::NewStub(grpc::CreateChannel((*server)->addresses()[0], grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::ReadManifestRequest request;
  request.set_file(std::string(1000, 'x'));
  v1::ReadManifestResponse response;
  EXPECT_EQ(stub->ReadManifest(&context, request, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace sluice
