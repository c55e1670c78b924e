#include "lib/storage/serving/access_control.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/io_thread.h"
#include "lib/storage/serving/block_server.h"
#include "lib/storage/serving/probe_server.h"
#include "lib/storage/serving/rpc_server.h"
#include "lib/storage/serving/sru_server.h"
#include "tests/eventually.h"
#include "tests/unit/storage/serving/sru_read.h"
#include "tests/unit/storage/serving/sru_request.h"
#include "tests/unit/storage/stripe/striped_folder.h"
#include "tests/unit/tls/test_authority.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using testing::TestIdentity;

constexpr absl::string_view kMethods[] = {"BlockService/Read", "SruService/ReadSru", "SruService/ReadManifest",
                                          "ProbeService/Probe", "ProbeService/GetTcpCounters"};

// A server with all services, and "data" and "secret" in its folder.
class AccessControlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* file : {"data", "secret"}) {
      ASSERT_TRUE(testing::StripeBytes(testing::SourceBytes(95),
                                       {.root = folder_.path(), .file = file, .workers = 1, .sru_bytes = 100})
                      .ok());
    }
  }

  void Start(std::vector<AccessRule> rules, const std::string& listen, std::optional<ServerTls> tls) {
    auto access_rules = AccessRules::Create(std::move(rules), kMethods);
    ASSERT_TRUE(access_rules.ok()) << access_rules.status();
    access_ = std::make_shared<AccessControl>(*access_rules, registry_, [this](const AccessRefusal& refusal) {
      absl::MutexLock lock(&mutex_);
      refusals_.push_back(refusal);
    });
    srus_ = std::make_unique<SruServer>(store_, metrics_, reports_, io_thread_.context(),
                                        SruServer::Options{.access = access_});
    probes_ = std::make_unique<ProbeServer>(io_thread_.context(), ProbeServer::Options{.access = access_});
    blocks_ = std::make_unique<BlockServer>([] { return nullptr; }, BlockServer::kMaxHeldBytes, access_);
    auto server = RpcServer::Start({.listen = {listen}, .tls = tls, .access = *std::move(access_rules)},
                                   {srus_.get(), probes_.get(), blocks_.get()});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  void StartWithTls(std::vector<AccessRule> rules) {
    const TestIdentity own = authority_.Issue("server");
    Start(std::move(rules), "127.0.0.1:0",
          ServerTls{
              .certificate_file = own.certificate_file, .key_file = own.key_file, .client_ca_file = authority_.file()});
  }

  void Connect(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(server_->addresses()[0], credentials, arguments);
  }
  // Connects with a certificate that has these names.
  void ConnectAs(const std::string& names) {
    const TestIdentity own = authority_.Issue("client", names);
    Connect(grpc::SslCredentials({.pem_root_certs = testing::ReadFile(authority_.file()),
                                  .pem_private_key = testing::ReadFile(own.key_file),
                                  .pem_cert_chain = testing::ReadFile(own.certificate_file)}));
  }

  static void Prepare(grpc::ClientContext& context) {
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(testing::kPatience));
  }
  grpc::Status ReadSru(const std::string& file) {
    grpc::ClientContext context;
    Prepare(context);
    v1::ReadSruResponse response;
    return sluice::ReadSru(*v1::SruService::NewStub(channel_), context, SruRequest(file, 0, 0, 10), response);
  }
  grpc::Status ReadManifest(const std::string& file) {
    grpc::ClientContext context;
    Prepare(context);
    v1::ReadManifestRequest request;
    request.set_file(file);
    request.set_length(10);
    v1::ReadManifestResponse response;
    return v1::SruService::NewStub(channel_)->ReadManifest(&context, request, &response);
  }
  grpc::Status ReadBlocks(const std::string& file) {
    grpc::ClientContext context;
    Prepare(context);
    v1::ReadRequest request;
    request.set_file(file);
    const auto reader = v1::BlockService::NewStub(channel_)->Read(&context, request);
    v1::ReadResponse response;
    while (reader->Read(&response)) {
    }
    return reader->Finish();
  }
  grpc::Status Probe() {
    grpc::ClientContext context;
    Prepare(context);
    v1::ProbeResponse response;
    return v1::ProbeService::NewStub(channel_)->Probe(&context, {}, &response);
  }
  grpc::Status Counters() {
    grpc::ClientContext context;
    Prepare(context);
    v1::GetTcpCountersResponse response;
    return v1::ProbeService::NewStub(channel_)->GetTcpCounters(&context, {}, &response);
  }

  double Refused(const std::string& service) const {
    for (const auto& family : registry_.Collect()) {
      if (family.name != "sluice_access_refusals_total") continue;
      for (const auto& metric : family.metric) {
        if (metric.label.at(0).value == service) return metric.counter.value;
      }
    }
    return -1;
  }
  std::vector<AccessRefusal> refusals() {
    absl::MutexLock lock(&mutex_);
    return refusals_;
  }

  testing::TemporaryFolder folder_;
  testing::TestAuthority authority_{folder_.path(), "authority"};
  IoThread io_thread_;
  const StripeStore store_ = StripeStore::Open(folder_.path()).value();
  prometheus::Registry registry_;
  WorkerMetrics metrics_{registry_};
  TcpReports reports_;
  absl::Mutex mutex_;
  std::vector<AccessRefusal> refusals_;
  std::shared_ptr<AccessControl> access_;
  std::unique_ptr<SruServer> srus_;
  std::unique_ptr<ProbeServer> probes_;
  std::unique_ptr<BlockServer> blocks_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(AccessControlTest, WithoutRulesEachClientOfTheAuthorityIsServed) {
  StartWithTls({});
  ConnectAs("DNS:anybody");
  EXPECT_TRUE(ReadSru("secret").ok());
  EXPECT_TRUE(Probe().ok());
}

TEST_F(AccessControlTest, WithRulesAClientWithoutOneIsRefusedAtEachMethod) {
  StartWithTls({{.names = {"spiffe://example/reader"}}});
  ConnectAs("DNS:stranger,URI:spiffe://example/other");
  for (const grpc::Status& status : {ReadSru("data"), ReadManifest("data"), ReadBlocks("data"), Probe(), Counters()}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_THAT(status.error_message(), HasSubstr("spiffe://example/other, stranger may not call"));
    EXPECT_THAT(status.error_message(), HasSubstr("no rule of access has this client"));
  }
  EXPECT_EQ(Refused("SruService"), 2);
  EXPECT_EQ(Refused("BlockService"), 1);
  EXPECT_EQ(Refused("ProbeService"), 2);
  ASSERT_EQ(refusals().size(), 5u);
  EXPECT_EQ(refusals()[0].client, "spiffe://example/other, stranger");
  EXPECT_EQ(refusals()[0].method, "SruService/ReadSru");
  EXPECT_THAT(refusals()[0].peer, HasSubstr("127.0.0.1"));
}

TEST_F(AccessControlTest, ARuleAllowsAMethodAndFiles) {
  StartWithTls({{.names = {"spiffe://example/reader"}, .methods = {"SruService"}, .files = {"data"}}});
  ConnectAs("URI:spiffe://example/reader");
  const grpc::Status allowed = ReadSru("data");
  EXPECT_TRUE(allowed.ok()) << allowed.error_message();
  EXPECT_TRUE(ReadManifest("data").ok());
  EXPECT_THAT(ReadSru("secret").error_message(), HasSubstr("access[0].files"));
  EXPECT_THAT(ReadManifest("secret").error_message(), HasSubstr("access[0].files"));
  EXPECT_THAT(Probe().error_message(), HasSubstr("access[0].methods"));
  EXPECT_EQ(ReadBlocks("data").error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(AccessControlTest, ADnsNameIsAName) {
  StartWithTls({{.names = {"Top.example"}, .methods = {"BlockService/Read"}}});
  ConnectAs("DNS:top.example");
  EXPECT_EQ(ReadBlocks("data").error_code(), grpc::StatusCode::UNAVAILABLE) << "allowed, but there are no workers";
  EXPECT_FALSE(ReadSru("data").ok());
}

TEST_F(AccessControlTest, ADnsNameIsNoUriAndAUriNoDnsName) {
  StartWithTls({{.names = {"top.example", "spiffe://example/reader"}}});
  for (const char* names : {"DNS:spiffe://example/reader", "URI:top.example"}) {
    ConnectAs(names);
    EXPECT_EQ(Probe().error_code(), grpc::StatusCode::PERMISSION_DENIED) << names;
    EXPECT_THAT(Probe().error_message(), HasSubstr("a client without a name")) << names;
  }
}

TEST_F(AccessControlTest, AUserOfAUnixSocketIsAClient) {
  for (const std::string& address :
       {"unix:" + (folder_.path() / "s").string(), std::string("unix-abstract:s-access")}) {
    Start({{.uids = {getuid()}, .methods = {"SruService"}}}, address, std::nullopt);
    Connect(grpc::InsecureChannelCredentials());
    const grpc::Status allowed = ReadSru("data");
    EXPECT_TRUE(allowed.ok()) << allowed.error_message();
    EXPECT_TRUE(ReadSru("secret").ok());
    EXPECT_THAT(Probe().error_message(), HasSubstr("uid "));
    channel_.reset();
    server_.reset();
  }
}

TEST_F(AccessControlTest, AnotherUserOfAUnixSocketIsNot) {
  Start({{.uids = {getuid() + 1}}}, "unix:" + (folder_.path() / "s").string(), std::nullopt);
  Connect(grpc::InsecureChannelCredentials());
  EXPECT_EQ(ReadSru("data").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(ReadSru("data").error_message(), HasSubstr("a client without a name"));
}

TEST_F(AccessControlTest, AUserMayHaveACertificateToo) {
  const TestIdentity own = authority_.Issue("server");
  Start({{.uids = {getuid()}, .files = {"data"}}, {.names = {"spiffe://example/reader"}, .methods = {"ProbeService"}}},
        "unix:" + (folder_.path() / "s").string(),
        ServerTls{
            .certificate_file = own.certificate_file, .key_file = own.key_file, .client_ca_file = authority_.file()});
  ConnectAs("URI:spiffe://example/reader");
  const grpc::Status allowed = ReadSru("data");
  EXPECT_TRUE(allowed.ok()) << allowed.error_message();
  EXPECT_TRUE(Probe().ok());
  EXPECT_THAT(ReadSru("secret").error_message(), HasSubstr("spiffe://example/reader, uid "));
}

// Nobody is known in the clear.
TEST_F(AccessControlTest, APlaintextClientIsRefused) {
  Start({{.names = {"spiffe://example/reader"}}}, "127.0.0.1:0", std::nullopt);
  Connect(grpc::InsecureChannelCredentials());
  EXPECT_EQ(ReadSru("data").error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

// Many calls on one connection, some of which begin together.
TEST_F(AccessControlTest, AllCallsOfAConnectionHaveItsUser) {
  Start({{.uids = {getuid()}}}, "unix:" + (folder_.path() / "s").string(), std::nullopt);
  Connect(grpc::InsecureChannelCredentials());
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([this] {
      for (int call = 0; call < 50; ++call) EXPECT_TRUE(ReadSru("data").ok());
    });
  }
  for (std::thread& client : clients) client.join();
}

}  // namespace
}  // namespace sluice
