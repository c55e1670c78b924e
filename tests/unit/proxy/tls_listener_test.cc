// Listeners whose clients must show a certificate, with clients that use only OpenSSL.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/proxy_fixture.h"
#include "tests/unit/tls/test_certificates.h"
#include "tests/unit/tls/tls_end.h"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TlsListenerTest : public ProxyTest {
 protected:
  void SetUp() override {
    const auto files = certificates_.Make("listener");
    options_.listeners = {{.address = "127.0.0.1:0", .route = "", .tls = true}};
    options_.listener_tls = ListenerTls{.files = {.certificate_file = files.certificate_file,
                                                  .key_file = files.key_file,
                                                  .client_ca_file = certificates_.ca_file()},
                                        .client_names = {}};
    options_.on_event = [this](const ProxyEvent& event) {
      if (event.kind == ProxyEvent::Kind::kHandshakeFailed) failures_.Add(event.why);
    };
    options_.on_listener_tls = [this](const absl::Status& state) { reloads_.Add(std::string(state.message())); };
  }
  void TearDown() override { proxy_.reset(); }

  TlsClientEnd::Options With(const TestCertificates::Options& certificate = {}) {
    return {.ca_file = certificates_.ca_file(), .files = certificates_.Make("client", certificate)};
  }
  TlsClientEnd::Options WithoutCertificate() { return {.ca_file = certificates_.ca_file(), .files = std::nullopt}; }
  std::unique_ptr<Http2Peer> TlsClient(const TlsClientEnd::Options& options, size_t listener = 0) {
    auto client = std::make_unique<Http2Peer>(ConnectTo(address(listener)), Http2Session::Options(),
                                              std::make_unique<TlsClientEnd>(options));
    client->Flush();
    return client;
  }
  // The metadata sluice-client of a call of this client, as its worker receives it.
  std::string NameAtWorker(Http2Peer& client) {
    TestHttp2Server worker([](TestHttp2Server::Call& call) {
      const auto& metadata = call.head().metadata;
      const auto found = std::find_if(metadata.begin(), metadata.end(),
                                      [](const auto& field) { return field.first == "sluice-client"; });
      call.Answer(found == metadata.end() ? "none" : found->second);
    });
    const auto& call = client.Open(Head(worker.address(), {{"sluice-client", "invented"}}), FrameMessage("?"));
    EXPECT_TRUE(Await({&client}, [&] { return call.closed.has_value(); }));
    return call.data.substr(std::min<size_t>(5, call.data.size()));
  }
  // Expects the proxy to serve a new client that has a certificate.
  void ExpectServesTls(const std::string& worker, size_t listener = 0) {
    const auto client = TlsClient(With(), listener);
    const Http2Peer::Stream& call = client->Open(Head(worker), FrameMessage("?"));
    EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
    EXPECT_EQ(call.status(), "0") << call.Field("grpc-message") << client->tls()->error();
  }
  double Failures() const { return Metric("sluice_proxy_connections_total", "kind", "handshake_failed"); }
  // Expects that the connection ends, and that the reported reason contains `why`.
  void ExpectRefused(const TlsClientEnd::Options& options, const std::string& why) {
    const size_t before = failures_.events().size();
    const auto client = TlsClient(options);
    EXPECT_TRUE(Await({client.get()}, [&] { return client->over(); })) << why;
    const std::vector<std::string> told = failures_.Await(before + 1);
    ASSERT_THAT(told, SizeIs(before + 1));
    EXPECT_THAT(told.back(), HasSubstr(why));
    EXPECT_EQ(Failures(), static_cast<double>(told.size()));
  }

  TestCertificates certificates_;
  EventLog failures_;
  EventLog reloads_;
};

TEST_F(TlsListenerTest, WorkersAreToldWhoTheClientIs) {
  options_.listeners.push_back({.address = "127.0.0.1:0", .route = ""});
  options_.listeners.push_back({.address = absl::StrCat("unix-abstract:sluice-name-", getpid()), .route = ""});
  StartProxy();
  const auto by_uri = TlsClient(With({.dns_names = {"a.svc"}, .uris = {"spiffe://cluster.local/ns/a/sa/b"}}));
  EXPECT_EQ(NameAtWorker(*by_uri), "spiffe://cluster.local/ns/a/sa/b");
  const auto by_name = TlsClient(With({.dns_names = {"a.svc", "b.svc"}}));
  EXPECT_EQ(NameAtWorker(*by_name), "a.svc");
  Http2Peer unknown(ConnectTo(address(1)));
  EXPECT_EQ(NameAtWorker(unknown), "none");
  Http2Peer user(ConnectTo(address(2)));
  EXPECT_EQ(NameAtWorker(user), absl::StrCat("uid ", geteuid()));
}

TEST_F(TlsListenerTest, AClientWithACertificateCallsWorkers) {
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Answer(std::string(200'000, 'x')); });
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClientEnd::Options options = With();
    options.max_version = version;
    const auto client = TlsClient(options);
    for (int i = 0; i < 3; ++i) client->Open(Head(worker.address()), FrameMessage(std::string(100'000, 'y')));
    EXPECT_TRUE(Await({client.get()}, [&] { return client->session().streams() == 0; }));
    for (const auto* call : client->streams()) {
      EXPECT_EQ(call->status(), "0") << call->Field("grpc-message");
      EXPECT_EQ(call->data.size(), 200'005U);
    }
  }
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "http2"), 2);
  EXPECT_EQ(Failures(), 0);
  EXPECT_THAT(failures_.events(), IsEmpty());
}

TEST_F(TlsListenerTest, AllOthersAreRefusedAndHarmNobody) {
  options_.listener_tls->client_names = {"localhost"};
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call& call) {
    if (call.request() != "hold") call.Answer("!");
  });
  const auto good = TlsClient(With());
  const auto& held = good->Open(Head(worker.address()), FrameMessage("hold"));
  EXPECT_TRUE(Await({good.get()}, [&] { return worker.counts().requests == 1; }));

  ExpectRefused(WithoutCertificate(), " showed no certificate");
  TestCertificates others;
  ExpectRefused({.ca_file = certificates_.ca_file(), .files = others.Make("client")},
                "is signed by an unknown authority");
  ExpectRefused(With({.valid_from = -absl::Hours(2), .valid_until = -absl::Hours(1)}), " expired at 20");
  ExpectRefused(With({.dns_names = {"another"}}), "is for another, 127.0.0.1, 0:0:0:0:0:0:0:1, and has none of");
  TlsClientEnd::Options other = With();
  other.alpn = {"imap"};
  ExpectRefused(other, "offers neither HTTP/2 nor HTTP/1.1");
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "http2"), 1);

  ExpectServesTls(worker.address());
  worker.Run([&] { worker.calls().front()->Answer("late"); });
  EXPECT_TRUE(Await({good.get()}, [&] { return held.closed.has_value(); }));
  EXPECT_EQ(held.data, FrameMessage("late"));
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "refused"), 0);
}

TEST_F(TlsListenerTest, AClientInTheClearIsRefused) {
  StartProxy();
  TestHttp2Server worker(Says("!"));
  size_t told = 0;
  for (const std::string& bytes :
       {absl::StrCat(raw::kPreface, raw::Settings(), raw::Headers(1, Head(worker.address()))),
        absl::StrCat("CONNECT ", worker.address(), " HTTP/1.1\r\n\r\n"), std::string("GET / HTTP/1.1\r\n\r\n"),
        std::string(1000, '\0')}) {
    TestSocket socket = ConnectTo(address());
    socket.Send(bytes);
    EXPECT_EQ(socket.ReceiveAll(), "");
    EXPECT_THAT(failures_.Await(++told).back(), HasSubstr(": the other side does not speak TLS"));
  }
  EXPECT_EQ(worker.counts().requests, 0);
  ExpectServesTls(worker.address());
}

// Tests each of these ways, all at the same time.
TEST_F(TlsListenerTest, AClientThatIsSilentInTheHandshakeIsNotWaitedForLong) {
  options_.proxy.opening_timeout = std::chrono::seconds(3);
  StartProxy();
  TestHttp2Server worker(Says("!"));
  std::string hello;
  TlsClientEnd client(With());
  ASSERT_TRUE(client.Receive("", hello));
  std::vector<TestSocket> sockets;
  for (int i = 0; i < 50; ++i) {
    for (const std::string& said : {std::string(), hello.substr(0, 1), hello.substr(0, hello.size() - 1), hello}) {
      sockets.push_back(ConnectTo(address()));
      sockets.back().Send(said);
    }
  }
  ExpectServesTls(worker.address());
  const std::vector<std::string> told = failures_.Await(sockets.size());
  ASSERT_THAT(told, SizeIs(sockets.size()));
  for (const std::string& why : told) {
    EXPECT_THAT(why, HasSubstr(" has not completed its handshake within limits.opening_timeout, 3s"));
  }
  EXPECT_EQ(Failures(), static_cast<double>(sockets.size()));
  for (TestSocket& socket : sockets) socket.ReceiveAll();  // until the connection ends
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
  ExpectServesTls(worker.address());
}

TEST_F(TlsListenerTest, AClientThatIsSilentBehindItIsNotWaitedForEither) {
  options_.proxy.opening_timeout = std::chrono::seconds(3);
  StartProxy();
  TestSocket socket = ConnectTo(address());
  TlsClientEnd client(With());
  std::string output;
  ASSERT_TRUE(client.Receive("", output));
  std::array<char, 16384> buffer;
  while (!client.ended()) {
    socket.Send(std::exchange(output, {}));
    const ssize_t got = recv(socket.fd(), buffer.data(), buffer.size(), 0);
    ASSERT_GT(got, 0) << "it is told the end";
    ASSERT_TRUE(client.Receive({buffer.data(), static_cast<size_t>(got)}, output));
  }
  EXPECT_TRUE(client.established());
  EXPECT_EQ(Failures(), 0) << "there was no handshake that failed";
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
}

TEST_F(TlsListenerTest, EachDirectionOfATunnelEndsByItself) {
  StartProxy();
  TestListener worker("127.0.0.1:0", [](int fd) { SendAll(fd, "<" + ReceiveAll(fd) + ">"); });
  TestSocket socket = ConnectTo(address());
  TlsClientEnd client(With());
  std::string output;
  ASSERT_TRUE(client.Receive("", output));
  std::array<char, 16384> buffer;
  bool asked = false;
  while (!client.ended()) {
    if (client.established() && !std::exchange(asked, true)) {
      output += client.Send(absl::StrCat("CONNECT ", worker.address().text, " HTTP/1.1\r\n\r\nquestion"));
      output += client.SendEnd();
    }
    if (!output.empty()) socket.Send(std::exchange(output, {}));
    const ssize_t got = recv(socket.fd(), buffer.data(), buffer.size(), 0);
    ASSERT_GT(got, 0) << "the end comes by TLS";
    ASSERT_TRUE(client.Receive({buffer.data(), static_cast<size_t>(got)}, output));
  }
  EXPECT_EQ(client.received(), "HTTP/1.1 200 Connection established\r\n\r\n<question>");
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
}

TEST_F(TlsListenerTest, ARouteHasItToo) {
  TestHttp2Server worker(Says("!"));
  options_.listeners.push_back({.address = "127.0.0.1:0", .route = worker.address(), .tls = true});
  options_.listeners.push_back({.address = "127.0.0.1:0", .route = ""});
  StartProxy();
  ExpectServesTls("any.name", 1);
  Http2Peer plain(ConnectTo(address(2)));
  const auto& call = plain.Open(Head(worker.address()), FrameMessage("?"));
  EXPECT_TRUE(Await({&plain}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.status(), "0") << "beside it, one without TLS";
}

// --- The proxy's own certificate.

TEST_F(TlsListenerTest, TheProxysCertificateIsLentToWhoeverShowsOne) {
  TestCertificates mesh;
  TestHttp2Server worker(
      Says("!"), {.tls = TlsServerEnd::Options{.files = mesh.Make("worker"), .client_ca_file = mesh.ca_file()}});
  options_.tls = mesh.ClientOptions(mesh.Make("proxy"));
  options_.listeners.push_back({.address = absl::StrCat("unix-abstract:sluice-tls-listener-", getpid()), .route = ""});
  StartProxy();
  ExpectServesTls(worker.address());
  Http2Peer local(ConnectTo(address(1)));
  const auto& call = local.Open(Head(worker.address()), FrameMessage("?"));
  EXPECT_TRUE(Await({&local}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.status(), "0") << "the kernel says who that is";
  ExpectRefused(WithoutCertificate(), " showed no certificate");
  ExpectRefused({.ca_file = certificates_.ca_file(), .files = mesh.Make("client")}, "unknown authority");
  EXPECT_EQ(worker.counts().requests, 2);
  const auto client = TlsClient(With());
  const auto& denied = client->Open(Head("10.0.0.1:7000"), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return denied.closed.has_value(); }));
  EXPECT_EQ(denied.status(), "7") << "for the workers that may be called";
}

TEST_F(TlsListenerTest, ANameWithWorkersOfItsOwnCallsThoseAlone) {
  TestHttp2Server own(Says("own"));
  TestHttp2Server common(Says("common"));
  options_.workers = {common.address()};
  options_.clients = {{.users = {}, .names = {"nobody", "spiffe://test/front"}, .workers = {own.address()}}};
  StartProxy();
  const auto front = TlsClient(With({.uris = {"spiffe://test/front"}}));
  const auto other = TlsClient(With({.uris = {"spiffe://test/frontier"}}));
  EXPECT_EQ(StatusOf(*front, own.address()), "0");
  EXPECT_EQ(StatusOf(*front, common.address()), "7");
  EXPECT_EQ(StatusOf(*other, common.address()), "0");
  EXPECT_EQ(StatusOf(*other, own.address()), "7");
}

TEST_F(TlsListenerTest, ADnsNameIsNoUriAndAUriNoDnsName) {
  TestHttp2Server own(Says("own"));
  TestHttp2Server common(Says("common"));
  options_.workers = {common.address()};
  options_.clients = {{.users = {}, .names = {"front.test", "spiffe://test/front"}, .workers = {own.address()}}};
  StartProxy();
  const auto by_dns = TlsClient(With({.dns_names = {"spiffe://test/front"}, .ip_addresses = {}}));
  const auto by_uri = TlsClient(With({.dns_names = {}, .ip_addresses = {}, .uris = {"front.test"}}));
  for (Http2Peer* client : {by_dns.get(), by_uri.get()}) {
    EXPECT_EQ(StatusOf(*client, own.address()), "7");
    EXPECT_EQ(StatusOf(*client, common.address()), "0");
  }
  options_.workers = {};
  options_.clients = {};
  StartProxy();
  const auto told = TlsClient(With({.dns_names = {"spiffe://test/front"}, .ip_addresses = {}}));
  EXPECT_EQ(NameAtWorker(*told), "none");
}

// --- New files.

TEST_F(TlsListenerTest, NewAuthoritiesAndCertificatesAreTakenWhileItServes) {
  StartProxy();
  TestHttp2Server worker(Says("!"));
  const auto before = TlsClient(With());
  const auto call_by = [&](Http2Peer& client) {
    const auto& call = client.Open(Head(worker.address()), FrameMessage("?"));
    EXPECT_TRUE(Await({&client}, [&] { return call.closed.has_value() || client.over(); }));
    return call.status();
  };
  EXPECT_EQ(call_by(*before), "0");

  TestCertificates others;
  const TlsClientEnd::Options other{.ca_file = certificates_.ca_file(), .files = others.Make("client")};
  ReplaceFile(certificates_.ca_file() + ".old", ReadFile(certificates_.ca_file()));
  ReplaceFile(certificates_.ca_file(), ReadFile(others.ca_file()));
  const TlsClientEnd::Options trusting{.ca_file = certificates_.ca_file() + ".old", .files = other.files};
  // The proxy checks the files again a second later.
  EXPECT_TRUE(Eventually([&] {
    const auto client = TlsClient(trusting);
    return call_by(*client) == "0";
  }));
  TlsClientEnd::Options old = With();
  old.ca_file = trusting.ca_file;
  ExpectRefused(old, "is signed by an unknown authority");
  EXPECT_EQ(call_by(*before), "0") << "a connection keeps what it was made with";
  EXPECT_THAT(reloads_.events(), IsEmpty());

  ReplaceFile(options_.listener_tls->files.key_file, "no key");
  EXPECT_TRUE(Eventually([&] {
    EXPECT_EQ(call_by(*TlsClient(trusting)), "0") << "the last good files stay in force";
    return !reloads_.events().empty();
  }));
  EXPECT_THAT(reloads_.events().front(), HasSubstr("listener_tls.key: "));
  certificates_.Make("listener");
  EXPECT_TRUE(Eventually([&] { return call_by(*TlsClient(trusting)) == "0" && reloads_.events().size() == 2; }));
  EXPECT_THAT(reloads_.events(), ElementsAre(HasSubstr("listener_tls.key: "), "")) << "and each is told once";
}

}  // namespace
}  // namespace sluice::testing
