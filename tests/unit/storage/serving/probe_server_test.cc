#include "lib/storage/serving/probe_server.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/io_thread.h"
#include "lib/storage/serving/rpc_server.h"
#include "tests/eventually.h"
#include "tests/unit/storage/serving/silent_client.h"
#include "tests/wait_until.h"

namespace sluice {
namespace {

using testing::kPatience;

using ::testing::HasSubstr;

class ProbeServerTest : public ::testing::Test {
 protected:
  void Start(const ProbeServer::Options& options = {}, const std::vector<std::string>& listen = {"127.0.0.1:0"}) {
    service_ = std::make_unique<ProbeServer>(io_thread_.context(), options);
    auto server = RpcServer::Start({.listen = listen}, {service_.get()});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::ProbeService::NewStub(grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials()));
  }

  grpc::Status Probe(uint32_t payload_bytes, v1::ProbeResponse& response) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    v1::ProbeRequest request;
    request.set_payload_bytes(payload_bytes);
    return stub_->Probe(&context, request, &response);
  }

  grpc::Status Counters(v1::GetTcpCountersResponse& response) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    return stub_->GetTcpCounters(&context, {}, &response);
  }

  IoThread io_thread_;
  std::unique_ptr<ProbeServer> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::ProbeService::Stub> stub_;
};

TEST_F(ProbeServerTest, AnswersWithAsManyBytesAsItIsAsked) {
  Start();
  for (const uint32_t bytes : {0U, 1U, 1448U, kMaxProbePayloadBytes}) {
    v1::ProbeResponse response;
    const grpc::Status status = Probe(bytes, response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.payload().size(), bytes);
  }
}

TEST_F(ProbeServerTest, RefusesMoreThanAMegabyte) {
  Start();
  v1::ProbeResponse response;
  const grpc::Status status = Probe(kMaxProbePayloadBytes + 1, response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("payload_bytes is 1048577; it must be at most 1048576"));
}

TEST_F(ProbeServerTest, RefusesWhatItsMemoryDoesNotHoldAndGivesBackWhatItHeld) {
  Start({.max_answer_bytes = 1000});
  v1::ProbeResponse response;
  EXPECT_EQ(Probe(1001, response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  // The memory of a response is released a moment after its client has received it.
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(WaitUntil([&] { return Probe(1000, response).ok(); }, kPatience));
    EXPECT_EQ(response.payload().size(), 1000);
  }
}

TEST_F(ProbeServerTest, AClientThatTakesNothingDoesNotRefuseOthersForEver) {
  Start({.max_answer_bytes = 1000, .stall_timeout = std::chrono::nanoseconds(0)});
  v1::ProbeRequest request;
  request.set_payload_bytes(1000);
  const testing::SilentClient slow(server_->addresses()[0]);
  slow.Call("/sluice.v1.ProbeService/Probe", request, /*window_bytes=*/0);
  v1::ProbeResponse response;
  EXPECT_TRUE(testing::Eventually([&] { return !Probe(1000, response).ok(); }));
  EXPECT_TRUE(testing::Eventually([&] { return Probe(1000, response).ok(); }));
}

TEST_F(ProbeServerTest, TellsTheCountersOfTheConnectionThatAsks) {
  Start();
  v1::ProbeResponse answer;
  ASSERT_TRUE(Probe(100'000, answer).ok());
  v1::GetTcpCountersResponse response;
  const grpc::Status status = Counters(response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.connections_size(), 1);
  const v1::TcpConnection& connection = response.connections(0);
  EXPECT_EQ(connection.local(), server_->addresses()[0]);
  EXPECT_THAT(connection.remote(), HasSubstr("127.0.0.1:"));
  EXPECT_NE(connection.remote(), connection.local());
  EXPECT_GE(connection.congestion_window_packets(), 1);
  EXPECT_EQ(connection.retransmitted_packets(), 0);
}

TEST_F(ProbeServerTest, TellsEachConnectionItsOwn) {
  Start();
  v1::GetTcpCountersResponse first;
  ASSERT_TRUE(Counters(first).ok());
  grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  stub_ = v1::ProbeService::NewStub(
      grpc::CreateCustomChannel(server_->addresses()[0], grpc::InsecureChannelCredentials(), own));
  v1::GetTcpCountersResponse second;
  ASSERT_TRUE(Counters(second).ok());
  ASSERT_EQ(first.connections_size(), 1);
  ASSERT_EQ(second.connections_size(), 1);
  EXPECT_NE(first.connections(0).remote(), second.connections(0).remote());
}

TEST_F(ProbeServerTest, KnowsConnectionsOverIpv6) {
  service_ = std::make_unique<ProbeServer>(io_thread_.context(), ProbeServer::Options());
  auto server = RpcServer::Start({.listen = {"[::1]:0"}}, {service_.get()});
  if (!server.ok()) GTEST_SKIP() << "no IPv6 here: " << server.status();
  server_ = *std::move(server);
  stub_ = v1::ProbeService::NewStub(grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials()));
  v1::GetTcpCountersResponse response;
  const grpc::Status status = Counters(response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.connections_size(), 1);
  EXPECT_THAT(response.connections(0).remote(), HasSubstr("[::1]:"));
}

TEST_F(ProbeServerTest, HasNoCountersOfWhatIsNoTcpConnection) {
  const std::string socket = absl::StrCat(::testing::TempDir(), "/sluice-probe.sock");
  std::filesystem::remove(socket);
  Start({}, {absl::StrCat("unix:", socket)});
  v1::GetTcpCountersResponse response;
  const grpc::Status status = Counters(response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << status.error_message();
  v1::ProbeResponse answer;
  EXPECT_TRUE(Probe(10, answer).ok());
}

TEST_F(ProbeServerTest, RefusesCallsForCountersBeyondThoseThatMayWait) {
  constexpr int kMayWait = 3;
  Start({.max_counter_calls = kMayWait});
  absl::Notification let_go;
  boost::asio::post(io_thread_.context(), [&let_go] { let_go.WaitForNotification(); });
  struct Call {
    grpc::ClientContext context;
    v1::GetTcpCountersResponse response;
  };
  std::list<Call> calls(kMayWait + 1);
  const v1::GetTcpCountersRequest request;
  std::atomic<int> ok = 0;
  std::atomic<int> refused = 0;
  std::atomic<int> left = kMayWait + 1;
  absl::Notification one_refused;
  absl::Notification done;
  for (Call& call : calls) {
    stub_->async()->GetTcpCounters(&call.context, &request, &call.response, [&](const grpc::Status& status) {
      ok += status.ok() ? 1 : 0;
      if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED && ++refused == 1) one_refused.Notify();
      if (--left == 0) done.Notify();
    });
  }
  EXPECT_TRUE(one_refused.WaitForNotificationWithTimeout(kPatience));
  let_go.Notify();
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(ok, kMayWait);
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace sluice
