#include "lib/storage/serving/server_credentials.h"

#include <atomic>
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

#include "sluice/v1/probe_service.grpc.pb.h"

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/serving/rpc_server.h"
#include "tests/eventually.h"
#include "tests/unit/storage/stripe/striped_folder.h"
#include "tests/unit/tls/test_authority.h"

namespace sluice {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;
using testing::ReadFile;
using testing::TestAuthority;
using testing::TestIdentity;

class EmptyProbes final : public v1::ProbeService::Service {
  grpc::Status Probe(grpc::ServerContext*, const v1::ProbeRequest*, v1::ProbeResponse*) override {
    return grpc::Status::OK;
  }
};

class ServerCredentialsTest : public ::testing::Test {
 protected:
  void Start(const ServerTls& tls, const std::string& listen = "127.0.0.1:0") {
    auto server = RpcServer::Start({.listen = {listen},
                                    .tls = tls,
                                    .on_refused_certificate =
                                        [this](const absl::Status& why) {
                                          absl::MutexLock lock(&mutex_);
                                          refused_.emplace_back(why.message());
                                        }},
                                   {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  // Why certificates of clients were refused since the last call.
  std::vector<std::string> Refused() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(refused_, {});
  }

  ServerTls OwnTls() { return {.certificate_file = identity_.certificate_file, .key_file = identity_.key_file}; }

  // Returns the credentials of a client that trusts the authority, with a client certificate if `own` is set.
  static std::shared_ptr<grpc::ChannelCredentials> Trusting(const TestAuthority& authority,
                                                            const std::optional<TestIdentity>& own = std::nullopt) {
    grpc::SslCredentialsOptions options{.pem_root_certs = ReadFile(authority.file())};
    if (own.has_value()) {
      options.pem_cert_chain = ReadFile(own->certificate_file);
      options.pem_private_key = ReadFile(own->key_file);
    }
    return grpc::SslCredentials(options);
  }

  // Opens a separate connection.
  std::shared_ptr<grpc::Channel> Connect(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                         const std::string& server_name = "") const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    if (!server_name.empty()) arguments.SetSslTargetNameOverride(server_name);
    return grpc::CreateCustomChannel(server_->addresses()[0], credentials, arguments);
  }

  static grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(testing::kPatience));
    v1::ProbeResponse response;
    return v1::ProbeService::NewStub(channel)->Probe(&context, {}, &response);
  }

  testing::TemporaryFolder folder_;
  TestAuthority authority_{folder_.path(), "authority"};
  TestAuthority stranger_{folder_.path(), "stranger"};
  const TestIdentity identity_ = authority_.Issue("server");
  EmptyProbes service_;
  absl::Mutex mutex_;
  std::vector<std::string> refused_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<RpcServer> server_;
};

TEST_F(ServerCredentialsTest, AClientThatTrustsTheAuthorityIsServed) {
  Start(OwnTls());
  const grpc::Status status = Call(Connect(Trusting(authority_)));
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(Call(Connect(Trusting(stranger_))).ok());
  EXPECT_FALSE(Call(Connect(grpc::InsecureChannelCredentials())).ok()) << "nothing is served in the clear";
}

TEST_F(ServerCredentialsTest, TheCertificateIsForItsNames) {
  const TestIdentity named = authority_.Issue("named", "DNS:worker.example");
  Start({.certificate_file = named.certificate_file, .key_file = named.key_file});
  EXPECT_FALSE(Call(Connect(Trusting(authority_))).ok());
  const grpc::Status status = Call(Connect(Trusting(authority_), "worker.example"));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ServerCredentialsTest, AUnixSocketHasTlsToo) {
  Start(OwnTls(), "unix:" + (folder_.path() / "socket").string());
  EXPECT_FALSE(Call(Connect(grpc::InsecureChannelCredentials())).ok());
  const grpc::Status status = Call(Connect(Trusting(authority_), "localhost"));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ServerCredentialsTest, WithAClientCaOnlyItsClientsAreServed) {
  ServerTls tls = OwnTls();
  tls.client_ca_file = authority_.file();
  Start(tls);
  const grpc::Status status = Call(Connect(Trusting(authority_, authority_.Issue("client"))));
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(Call(Connect(Trusting(authority_))).ok()) << "no certificate";
  EXPECT_FALSE(Call(Connect(Trusting(authority_, stranger_.Issue("other")))).ok()) << "one of somebody else";
}

TEST_F(ServerCredentialsTest, TheReasonOfARefusalNamesTheCertificate) {
  ServerTls tls = OwnTls();
  tls.client_ca_file = authority_.file();
  const TestIdentity stolen = authority_.Issue("stolen", "DNS:stolen.example");
  tls.crl_file = authority_.Revoke("crl", {stolen.certificate_file});
  Start(tls);
  const auto reason = [&](const TestIdentity& identity) {
    EXPECT_FALSE(Call(Connect(Trusting(authority_, identity))).ok());
    const std::vector<std::string> reasons = Refused();
    return reasons.empty() ? "none" : reasons.front();
  };
  EXPECT_EQ(reason(stolen), "the certificate of a client (stolen.example) is revoked");
  EXPECT_THAT(reason(stranger_.Issue("other", "DNS:other.example")),
              HasSubstr("the certificate of a client (other.example) is signed by an unknown authority, \"stranger\""));
  EXPECT_TRUE(Call(Connect(Trusting(authority_, authority_.Issue("client")))).ok());
  EXPECT_EQ(Refused(), std::vector<std::string>());
}

TEST_F(ServerCredentialsTest, ARevokedClientIsRefusedWithoutARestart) {
  const TestIdentity good = authority_.Issue("good");
  const TestIdentity stolen = authority_.Issue("stolen");
  ServerTls tls = OwnTls();
  tls.client_ca_file = authority_.file();
  tls.crl_file = authority_.Revoke("crl", {});
  Start(tls);
  EXPECT_TRUE(Call(Connect(Trusting(authority_, stolen))).ok());
  authority_.Revoke("crl", {stolen.certificate_file});
  EXPECT_TRUE(Eventually([&] { return !Call(Connect(Trusting(authority_, stolen))).ok(); }));
  const grpc::Status status = Call(Connect(Trusting(authority_, good)));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ServerCredentialsTest, WithAListThatHasExpiredNobodyIsServed) {
  ServerTls tls = OwnTls();
  tls.client_ca_file = authority_.file();
  tls.crl_file = authority_.Revoke("crl", {}, /*valid=*/false);
  Start(tls);
  EXPECT_FALSE(Call(Connect(Trusting(authority_, authority_.Issue("client")))).ok());
}

TEST_F(ServerCredentialsTest, AnOldConnectionEndsAndItsClientIsCheckedAgain) {
  const TestIdentity client = authority_.Issue("client");
  ServerTls tls = OwnTls();
  tls.client_ca_file = authority_.file();
  tls.crl_file = authority_.Revoke("crl", {});
  auto server = RpcServer::Start({.listen = {"127.0.0.1:0"}, .tls = tls, .max_connection_age = absl::Milliseconds(50)},
                                 {&service_});
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  const auto standing = Connect(Trusting(authority_, client));
  EXPECT_TRUE(Call(standing).ok());
  authority_.Revoke("crl", {client.certificate_file});
  EXPECT_TRUE(Eventually([&] { return !Call(standing).ok(); }));
}

TEST_F(ServerCredentialsTest, FilesThatCannotServeAreRefusedAtTheStart) {
  ServerTls tls = OwnTls();
  tls.key_file = "/none";
  const absl::Status status = RpcServer::Start({.listen = {"127.0.0.1:0"}, .tls = tls}, {&service_}).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("tls.key: \"/none\""));
}

// The server changes to a certificate of another authority while a client calls continuously.
TEST_F(ServerCredentialsTest, NewConnectionsHaveTheNewCertificateAndOldOnesGoOn) {
  Start(OwnTls());
  const auto standing = Connect(Trusting(authority_));
  ASSERT_TRUE(Call(standing).ok());
  std::atomic<bool> done = false;
  std::atomic<int> calls = 0;
  grpc::Status failed;
  std::thread client([&] {
    while (!done && failed.ok()) {
      failed = Call(standing);
      ++calls;
    }
  });
  stranger_.Issue("server");
  EXPECT_TRUE(Eventually([&] { return Call(Connect(Trusting(stranger_))).ok(); }));
  EXPECT_FALSE(Call(Connect(Trusting(authority_))).ok());
  const int before = calls;
  EXPECT_TRUE(Eventually([&] { return calls > before + 10; }));
  done = true;
  client.join();
  EXPECT_TRUE(failed.ok()) << failed.error_message();
}

TEST_F(ServerCredentialsTest, AnotherClientCaIsTakenOver) {
  const TestIdentity old_client = authority_.Issue("old");
  const TestIdentity new_client = stranger_.Issue("new");
  ServerTls tls = OwnTls();
  tls.client_ca_file = folder_.path() / "clients";
  testing::WriteFile(tls.client_ca_file, ReadFile(authority_.file()));
  Start(tls);
  EXPECT_TRUE(Call(Connect(Trusting(authority_, old_client))).ok());
  EXPECT_FALSE(Call(Connect(Trusting(authority_, new_client))).ok());
  testing::WriteFile(tls.client_ca_file, ReadFile(stranger_.file()));
  EXPECT_TRUE(Eventually([&] { return Call(Connect(Trusting(authority_, new_client))).ok(); }));
  EXPECT_FALSE(Call(Connect(Trusting(authority_, old_client))).ok());
}

// Existing connections survive while a file is missing or invalid.
TEST_F(ServerCredentialsTest, FilesThatGoAndComeBackAreReadThen) {
  Start(OwnTls());
  const auto standing = Connect(Trusting(authority_));
  ASSERT_TRUE(Call(standing).ok());
  std::filesystem::remove(identity_.certificate_file);
  std::filesystem::remove(identity_.key_file);
  EXPECT_TRUE(Call(standing).ok());
  stranger_.Issue("server");
  EXPECT_TRUE(Eventually([&] { return Call(Connect(Trusting(stranger_))).ok(); }));
  EXPECT_TRUE(Call(standing).ok());
}

}  // namespace
}  // namespace sluice
