// Clients whose certificates a new revocation list names while they are connected.
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/proxy_fixture.h"
#include "tests/unit/storage/stripe/striped_folder.h"
#include "tests/unit/tls/test_authority.h"
#include "tests/unit/tls/tls_end.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

class RevokedClientTest : public ProxyTest {
 protected:
  void SetUp() override {
    const TestIdentity own = root_.Issue("listener");
    WriteLists({}, {});
    options_.listeners = {{.address = "127.0.0.1:0", .route = "", .tls = true}};
    options_.listener_tls = ListenerTls{.files = {.certificate_file = own.certificate_file,
                                                  .key_file = own.key_file,
                                                  .client_ca_file = root_.file(),
                                                  .crl_file = folder_.path() / "crl"},
                                        .client_names = {}};
    options_.on_event = [this](const ProxyEvent& event) {
      if (event.kind == ProxyEvent::Kind::kRefused) refusals_.Add(event.why);
    };
    StartProxy();
  }
  void TearDown() override { proxy_.reset(); }

  // Writes the lists of both authorities, with the certificates in these files.
  void WriteLists(const std::vector<std::string>& of_root, const std::vector<std::string>& of_intermediate) {
    const std::string lists = absl::StrCat(ReadFile(root_.Revoke("root.crl", of_root)),
                                           ReadFile(intermediate_.Revoke("intermediate.crl", of_intermediate)));
    ReplaceFile(folder_.path() / "crl", lists);
  }
  TlsClientEnd::Options With(const TestIdentity& identity) {
    return {.ca_file = root_.file(), .files = TestCertificates::Files{identity.certificate_file, identity.key_file}};
  }
  std::unique_ptr<Http2Peer> ClientWith(const TestIdentity& identity) {
    auto client = std::make_unique<Http2Peer>(ConnectTo(address()), Http2Session::Options(),
                                              std::make_unique<TlsClientEnd>(With(identity)));
    client->Flush();
    return client;
  }

  TemporaryFolder folder_;
  TestAuthority root_{folder_.path(), "root"};
  TestAuthority intermediate_{folder_.path(), "intermediate", &root_};
  EventLog refusals_;
  TestHttp2Server worker_{[](TestHttp2Server::Call& call) {
    if (call.request() != "hold") call.Answer("!");
  }};
};

TEST_F(RevokedClientTest, LosesItsConnectionAndItsCalls) {
  const TestIdentity stolen_files = intermediate_.Issue("stolen");
  const auto stolen = ClientWith(stolen_files);
  const auto good = ClientWith(intermediate_.Issue("good"));
  EXPECT_EQ(StatusOf(*stolen, worker_.address()), "0");
  EXPECT_EQ(StatusOf(*good, worker_.address()), "0");
  const auto& held = stolen->Open(Head(worker_.address()), FrameMessage("hold"));
  EXPECT_TRUE(Await({stolen.get(), good.get()}, [&] { return worker_.counts().requests == 3; }));
  const auto& kept = good->Open(Head(worker_.address()), FrameMessage("hold"));
  EXPECT_TRUE(Await({stolen.get(), good.get()}, [&] { return worker_.counts().requests == 4; }));

  WriteLists({}, {stolen_files.certificate_file});
  EXPECT_TRUE(Await({stolen.get(), good.get()}, [&] { return stolen->over(); }));
  EXPECT_EQ(held.status(), "16");
  EXPECT_THAT(held.Field("grpc-message"), HasSubstr("is revoked"));
  EXPECT_TRUE(stolen->session().going_away());
  EXPECT_THAT(refusals_.Await(1).at(0), HasSubstr("is revoked"));
  EXPECT_EQ(StatusOf(*good, worker_.address()), "0") << "on the same connection";
  worker_.Run([&] { worker_.calls()[3]->Answer("late"); });
  EXPECT_TRUE(Await({good.get()}, [&] { return kept.closed.has_value(); }));
  EXPECT_EQ(kept.status(), "0");
}

TEST_F(RevokedClientTest, LosesItWhenItsAuthorityIsRevoked) {
  const auto below = ClientWith(intermediate_.Issue("below"));
  const auto other = ClientWith(root_.Issue("other"));
  EXPECT_EQ(StatusOf(*below, worker_.address()), "0");
  EXPECT_EQ(StatusOf(*other, worker_.address()), "0");
  WriteLists({intermediate_.file()}, {});
  EXPECT_TRUE(Await({below.get(), other.get()}, [&] { return below->over(); }));
  EXPECT_EQ(StatusOf(*other, worker_.address()), "0");
}

// An expired list refuses handshakes. It ends only the connections that it names.
TEST_F(RevokedClientTest, AListThatHasExpiredEndsNoOther) {
  const TestIdentity stolen_files = root_.Issue("stolen");
  const auto stolen = ClientWith(stolen_files);
  const auto good = ClientWith(root_.Issue("good"));
  EXPECT_EQ(StatusOf(*stolen, worker_.address()), "0");
  EXPECT_EQ(StatusOf(*good, worker_.address()), "0");
  ReplaceFile(folder_.path() / "crl",
              ReadFile(root_.Revoke("root.crl", {stolen_files.certificate_file}, /*valid=*/false)));
  EXPECT_TRUE(Await({stolen.get(), good.get()}, [&] { return stolen->over(); }));
  EXPECT_EQ(StatusOf(*good, worker_.address()), "0");
}

TEST_F(RevokedClientTest, LosesItsTunnelByAReset) {
  const TestIdentity stolen = root_.Issue("stolen");
  TestListener echo("127.0.0.1:0", [](int fd) { SendAll(fd, "<" + ReceiveAll(fd) + ">"); });
  TestSocket socket = ConnectTo(address());
  TlsClientEnd client(With(stolen));
  std::string output;
  ASSERT_TRUE(client.Receive("", output));
  std::array<char, 16384> buffer;
  bool asked = false;
  bool revoked = false;
  while (true) {
    if (client.established() && !std::exchange(asked, true)) {
      output += client.Send(absl::StrCat("CONNECT ", echo.address().text, " HTTP/1.1\r\n\r\n\1question"));
    }
    if (!output.empty()) socket.Send(std::exchange(output, {}));
    if (Metric("sluice_proxy_tunnels") == 1 && !std::exchange(revoked, true)) {
      WriteLists({stolen.certificate_file}, {});
    }
    const ssize_t got = recv(socket.fd(), buffer.data(), buffer.size(), revoked ? 0 : MSG_DONTWAIT);
    if (got <= 0 && !revoked) continue;
    if (got <= 0) break;
    ASSERT_TRUE(client.Receive({buffer.data(), static_cast<size_t>(got)}, output));
  }
  EXPECT_FALSE(client.ended()) << "what was cut off must not seem complete";
  EXPECT_THAT(refusals_.Await(1).at(0), HasSubstr("is revoked"));
  EXPECT_TRUE(AwaitMetric("sluice_proxy_tunnels", 0));
}

}  // namespace
}  // namespace sluice::testing
