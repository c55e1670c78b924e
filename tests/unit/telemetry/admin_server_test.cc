#include "lib/telemetry/admin_server.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "lib/net/io_thread.h"
#include "lib/storage/serving/worker_metrics.h"
#include "prometheus/registry.h"
#include "tests/unit/telemetry/http_client.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

class AdminServerTest : public ::testing::Test {
 protected:
  AdminServerTest() { metrics_.AddSentBytes(42); }

  AdminServer::Options Options() {
    return {.listen = "127.0.0.1:0",
            .name = "sluice-test",
            .collectables = {&registry_},
            .live = [this] { return live_; },
            .ready = [this] { return ready_; }};
  }

  void Start(AdminServer::Options options) {
    auto server = AdminServer::Start(io_thread_.context(), std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void Start() { Start(Options()); }

  std::string Ask(const std::string& request, bool is_head = false) {
    HttpClient client(server_->address());
    client.Send(request);
    return client.Receive(is_head);
  }
  std::string Get(const std::string& target) { return Ask("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n"); }

  prometheus::Registry registry_;
  WorkerMetrics metrics_{registry_};
  absl::Status live_;
  absl::Status ready_;
  IoThread io_thread_;
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTest, SaysWhichPortItGot) {
  Start();
  EXPECT_THAT(server_->address(), MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
}

// A site whose name leads to 127.0.0.1 may let a browser ask.
TEST_F(AdminServerTest, ServesNoOtherNameOnLoopback) {
  Start();
  for (const char* host : {"evil.example", "evil.example:9100", "localhost.evil.example", "127.0.0.1.evil.example"}) {
    const std::string response = Ask(absl::StrCat("GET /metrics HTTP/1.1\r\nHost: ", host, "\r\n\r\n"));
    EXPECT_THAT(response, StartsWith("HTTP/1.1 421 ")) << host;
    EXPECT_THAT(response, Not(HasSubstr("sluice"))) << host;
  }
  for (const char* host :
       {"localhost", "LOCALHOST:9100", "127.0.0.1", "127.0.0.1:9100", "[::1]:9100", "10.0.0.7:1", ""}) {
    EXPECT_THAT(Ask(absl::StrCat("GET /healthz HTTP/1.1\r\nHost: ", host, "\r\n\r\n")), StartsWith("HTTP/1.1 200 "))
        << host;
  }
}

TEST_F(AdminServerTest, RefusesWhatIsNoAddress) {
  AdminServer::Options options = Options();
  options.listen = "127.0.0.1";
  const auto server = AdminServer::Start(io_thread_.context(), options);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()), StartsWith("listen: \"127.0.0.1\" has no port; give host:port"));
}

TEST_F(AdminServerTest, SaysThatAPortIsBusy) {
  Start();
  AdminServer::Options options = Options();
  options.listen = server_->address();
  const auto second = AdminServer::Start(io_thread_.context(), options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(second.status().message()),
            "listen: cannot listen on " + server_->address() +
                ": Address already in use; stop the process that has this port, or give a different port");
}

TEST_F(AdminServerTest, NamesTheFieldOfTheProgram) {
  for (const std::string listen : {"foo:bar", "127.0.0.1:99999"}) {
    AdminServer::Options options = Options();
    options.listen = listen;
    options.field = "admin";
    const auto server = AdminServer::Start(io_thread_.context(), options);
    EXPECT_EQ(std::string(server.status().message()),
              "admin: \"" + listen + "\" has no port from 0 to 65535 after its last colon; give host:port");
  }
}

TEST_F(AdminServerTest, SaysThatAnAddressIsNotOfThisMachine) {
  AdminServer::Options options = Options();
  options.listen = "192.0.2.1:0";  // an address reserved for documentation (RFC 5737)
  const auto server = AdminServer::Start(io_thread_.context(), options);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("192.0.2.1:0"));
}

TEST_F(AdminServerTest, ServesMetricsAsPrometheusText) {
  Start();
  EXPECT_THAT(Get("/metrics"), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                                     HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
                                     HasSubstr("\nsluice_worker_sent_bytes_total 42\n")));
  EXPECT_THAT(Get("/metrics?name=x"), HasSubstr("\nsluice_worker_sent_bytes_total 42\n"));
}

TEST_F(AdminServerTest, ServesWhetherItIsReadyAndWhetherItIsAlive) {
  Start();
  for (const char* path : {"/healthz", "/readyz", "/livez"}) {
    EXPECT_THAT(Get(path), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("\r\n\r\nok\n"))) << path;
  }
  ready_ = absl::UnavailableError("draining");
  for (const char* path : {"/healthz", "/readyz"}) {
    EXPECT_THAT(Get(path), AllOf(StartsWith("HTTP/1.1 503 Service Unavailable\r\n"), EndsWith("\r\n\r\ndraining\n")))
        << path;
  }
  EXPECT_THAT(Get("/livez"), StartsWith("HTTP/1.1 200 OK\r\n")) << "a restart would not help";
  live_ = absl::UnavailableError("it hangs");
  EXPECT_THAT(Get("/livez"), AllOf(StartsWith("HTTP/1.1 503 Service Unavailable\r\n"), EndsWith("\r\n\r\nit hangs\n")));
}

TEST_F(AdminServerTest, HasAnIndex) {
  Start();
  EXPECT_THAT(Get("/"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Type: text/html; charset=utf-8\r\n"),
                    HasSubstr("sluice-test"), HasSubstr("href=\"metrics\"")));
}

TEST_F(AdminServerTest, ServesThePagesOfItsOwner) {
  AdminServer::Options options = Options();
  int asked = 0;
  options.pages = {
      {"/", {.content_type = "text/html", .body = [] { return "<h1>mine</h1>"; }}},
      {"/count.json", {.content_type = "application/json", .body = [&asked] { return std::to_string(++asked); }}}};
  Start(options);
  EXPECT_THAT(Get("/"), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Type: text/html\r\n"),
                              EndsWith("\r\n\r\n<h1>mine</h1>")));
  EXPECT_THAT(Get("/count.json"), AllOf(HasSubstr("Content-Type: application/json\r\n"), EndsWith("\r\n\r\n1")));
  EXPECT_THAT(Get("/count.json?again"), EndsWith("\r\n\r\n2"));
  EXPECT_THAT(Ask("HEAD /count.json HTTP/1.1\r\nHost: localhost\r\n\r\n", true), EndsWith("Content-Length: 1\r\n\r\n"));
  EXPECT_THAT(Ask("POST /count.json HTTP/1.1\r\nHost: localhost\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Get("/count.json/"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get("/healthz"), EndsWith("\r\n\r\nok\n"));
}

TEST_F(AdminServerTest, LetsNoAnswerBeKeptOrLoadAnythingFromElsewhere) {
  Start();
  for (const char* target : {"/", "/metrics", "/healthz", "/nothing"}) {
    EXPECT_THAT(Get(target), AllOf(HasSubstr("Cache-Control: no-store\r\n"),
                                   HasSubstr("Content-Security-Policy: default-src 'none'; connect-src 'self'; "),
                                   HasSubstr("X-Content-Type-Options: nosniff\r\n")))
        << target;
  }
}

TEST_F(AdminServerTest, AnswersHeadWithTheHeaderOfGet) {
  Start();
  const std::string head = Ask("HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", true);
  EXPECT_THAT(head, AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Length: 3\r\n"), EndsWith("\r\n\r\n")));
  EXPECT_EQ(head + "ok\n", Get("/healthz"));
}

TEST_F(AdminServerTest, RefusesUnknownPaths) {
  Start();
  for (const char* target : {"/nothing", "/metrics/", "/../metrics", "*", "http://x/metrics", "/metrics%00"}) {
    EXPECT_THAT(Get(target), StartsWith("HTTP/1.1 404 Not Found\r\n")) << target;
  }
}

TEST_F(AdminServerTest, RefusesOtherMethodsAndNeverReadsABody) {
  Start();
  EXPECT_THAT(Ask("DELETE /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"), HasSubstr("Allow: GET, HEAD\r\n")));
  HttpClient client(server_->address());
  client.Send("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nsome of it");
  EXPECT_THAT(client.Receive(), AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Connection: close\r\n")));
  EXPECT_TRUE(client.IsClosed());
}

TEST_F(AdminServerTest, KeepsAConnectionForTheNextRequest) {
  Start();
  HttpClient client(server_->address());
  for (int i = 0; i < 3; ++i) {
    client.Send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(client.Receive(), StartsWith("HTTP/1.1 200 OK\r\n"));
  }
}

TEST_F(AdminServerTest, ClosesTheConnectionWhenAsked) {
  Start();
  for (const char* request :
       {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "GET /healthz HTTP/1.0\r\n\r\n"}) {
    HttpClient client(server_->address());
    client.Send(request);
    EXPECT_THAT(client.Receive(), HasSubstr(" 200 OK\r\n"));
    EXPECT_TRUE(client.IsClosed());
  }
}

TEST_F(AdminServerTest, AnswersPipelinedRequestsInOrder) {
  Start();
  HttpClient client(server_->address());
  client.Send(
      "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD / "
      "HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.Receive(), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(client.Receive(), StartsWith("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(client.Receive(true), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(AdminServerTest, RefusesWhatIsNotHttp) {
  Start();
  for (const std::string& text : {std::string("nonsense\r\n\r\n"), std::string("GET /metrics HTTP/9.9\r\n\r\n"),
                                  std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
                                  std::string("GET /healthz HTTP/1.1\r\nContent-Length: many\r\n\r\n")}) {
    HttpClient client(server_->address());
    client.Send(text);
    EXPECT_THAT(client.Receive(), StartsWith("HTTP/1.1 400 Bad Request\r\n")) << text;
    EXPECT_TRUE(client.IsClosed());
  }
  EXPECT_THAT(Get("/healthz"), HasSubstr(" 200 OK\r\n"));
}

TEST_F(AdminServerTest, RefusesALargeHeader) {
  Start();
  HttpClient client(server_->address());
  client.Send("GET /metrics HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n");
  EXPECT_THAT(client.Receive(), StartsWith("HTTP/1.1 431 "));
  EXPECT_TRUE(client.IsClosed());
}

TEST_F(AdminServerTest, ASlowClientHoldsUpNobodyAndIsCutOff) {
  AdminServer::Options options = Options();
  options.request_timeout = absl::Seconds(1);
  Start(options);
  HttpClient slow(server_->address());
  slow.Send("GET /metrics HTTP/1.1\r\n");
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(slow.IsClosed());
}

TEST_F(AdminServerTest, ABrokenClientHarmsNobody) {
  Start();
  for (int i = 0; i < 20; ++i) {
    HttpClient client(server_->address());
    client.Send(i % 2 == 0 ? "GET /metrics HTTP/1.1\r\n" : "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(AdminServerTest, OneConnectionTooManyTakesThePlaceOfTheOldest) {
  Start();
  std::deque<HttpClient> clients;
  for (int i = 0; i < 64; ++i) {
    clients.emplace_back(server_->address());
    clients.back().Send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ASSERT_THAT(clients.back().Receive(), HasSubstr(" 200 OK\r\n"));
  }
  EXPECT_THAT(Get("/healthz"), HasSubstr(" 200 OK\r\n"));
  EXPECT_TRUE(clients.front().IsClosed());
  clients.back().Send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(clients.back().Receive(), HasSubstr(" 200 OK\r\n"));
}

TEST_F(AdminServerTest, StopsWithConnectionsOpenAndFreesItsPort) {
  Start();
  HttpClient idle(server_->address());
  idle.Send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(idle.Receive(), HasSubstr(" 200 OK\r\n"));
  HttpClient slow(server_->address());
  slow.Send("GET /");
  AdminServer::Options options = Options();
  options.listen = server_->address();
  server_.reset();
  EXPECT_TRUE(idle.IsClosed());
  Start(options);
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(AdminServerTest, CallsNothingOfItsOptionsAfterItIsGone) {
  for (int i = 0; i < 50; ++i) {
    auto health = std::make_unique<absl::Status>();
    AdminServer::Options options = Options();
    options.ready = [&status = *health] { return status; };
    Start(options);
    HttpClient client(server_->address());
    client.Send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    server_.reset();
    health.reset();  // AddressSanitizer detects a call after this
    EXPECT_THAT(client.Receive(), Not(HasSubstr("503")));
  }
}

}  // namespace
}  // namespace sluice
