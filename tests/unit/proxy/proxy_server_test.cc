#include "lib/proxy/proxy_server.h"

#include <algorithm>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "tests/unit/link/test_http2_connection.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = StreamEnd::Kind;

const ListenerTls kListenerTls{.files = {.certificate_file = "c.pem", .key_file = "k.pem", .client_ca_file = "a.pem"},
                               .client_names = {}};

class ProxyServerTest : public ProxyTest {
 protected:
  static std::string AbstractAddress(const std::string& name) {
    return absl::StrCat("unix-abstract:sluice-proxy-test-", getpid(), "-", name);
  }
  static std::unique_ptr<Http2Peer> ClientOf(const std::string& address) {
    auto client = std::make_unique<Http2Peer>(ConnectTo(address));
    client->Flush();
    return client;
  }
};

// --- Options.

TEST_F(ProxyServerTest, OptionsThatAreOutOfBoundsAreNamed) {
  using Options = ProxyServer::Options;
  const std::pair<std::function<void(Options&)>, const char*> cases[] = {
      {[](Options& o) { o.listeners.clear(); }, "listen is empty"},
      {[](Options& o) { o.workers = {"10.0.0.0/99"}; }, "workers: \"10.0.0.0/99\""},
      {[](Options& o) { o.listeners[0].route = "no-port"; }, "routes: "},
      {[](Options& o) { o.socket_mode = 01000; }, "socket_mode is 512; it must be 0 to 511"},
      {[](Options& o) { o.proxy.max_connections = 0; }, "limits.connections is 0; it must be 1 to "},
      {[](Options& o) { o.proxy.max_calls = 0; }, "limits.calls is 0"},
      {[](Options& o) { o.proxy.max_streams = 0; }, "limits.streams is 0"},
      {[](Options& o) { o.proxy.max_streams = (1 << 20) + 1; }, "limits.streams is 1048577"},
      {[](Options& o) { o.proxy.max_header_bytes = 1023; }, "limits.headers is 1023; it must be 1024 to 65536"},
      {[](Options& o) { o.proxy.max_header_bytes = (64 << 10) + 1; },
       "limits.headers is 65537; it must be 1024 to 65536"},
      {[](Options& o) { o.proxy.max_held_bytes = 1; }, "limits.held is 1; it must be 65536"},
      {[](Options& o) { o.proxy.max_held_bytes_per_call = 1; }, "limits.held_per_call is 1; it must be 16384"},
      {[](Options& o) { o.proxy.worker_tunnel_receive_bytes = 4095; },
       "tunnels.receive_window is 4095; it must be 0, or 4096 to 1073741824"},
      {[](Options& o) { o.proxy.worker_tunnel_receive_bytes = int64_t{1} << 31; },
       "tunnels.receive_window is 2147483648"},
      {[](Options& o) { o.proxy.worker_tunnel_class = "scan"; },
       "tunnels.traffic_class: \"scan\" is not a class of the link, which has no classes"},
      {[](Options& o) { o.clients = {{.users = {7}, .names = {}, .workers = {"private"}, .traffic_class = "scan"}}; },
       "clients[0].traffic_class: \"scan\" is not a class of the link, which has no classes"},
      {[](Options& o) { o.proxy.opening_timeout = {}; }, "limits.opening_timeout must be above 0"},
      {[](Options& o) { o.proxy.client_stall_timeout = {}; }, "limits.client_stall_timeout must be above 0"},
  };
  for (const auto& [spoil, why] : cases) {
    Options options{.listeners = {{.address = "127.0.0.1:0", .route = ""}}};
    EXPECT_TRUE(ProxyServer::Validate(options, {.policy = SchedulePolicy::kGrants}).ok());
    spoil(options);
    const absl::Status refused = ProxyServer::Validate(options, {.policy = SchedulePolicy::kGrants});
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument)) << why;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(why));
  }
  const Options options{.listeners = {{.address = "127.0.0.1:0", .route = ""}}};
  EXPECT_THAT(ProxyServer::Validate(options, {.policy = SchedulePolicy::kBatches}),
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(ProxyServer::Validate(options, {.policy = SchedulePolicy::kRolling}).ok());
}

TEST_F(ProxyServerTest, ACertificateIsNotLentToWhoeverReachesAPort) {
  ProxyServer::Options options{.listeners = {{.address = "127.0.0.1:0", .route = ""}},
                               .tls = TlsOptions{.certificate_file = "c.pem", .key_file = "k.pem"}};
  const absl::Status refused = ProxyServer::Validate(options, {.policy = SchedulePolicy::kGrants});
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("listen: \"127.0.0.1:0\""));
  options.listeners = {{.address = "unix:/run/s", .route = ""}, {.address = "localhost:0", .route = "w:1"}};
  EXPECT_THAT(std::string(ProxyServer::Validate(options, {.policy = SchedulePolicy::kGrants}).message()),
              HasSubstr("localhost:0"));
  options.listeners.pop_back();
  EXPECT_TRUE(ProxyServer::Validate(options, {.policy = SchedulePolicy::kGrants}).ok());
  options.listeners.push_back({.address = "0.0.0.0:0", .route = "", .tls = true});
  options.listener_tls = kListenerTls;
  EXPECT_TRUE(ProxyServer::Validate(options, {.policy = SchedulePolicy::kGrants}).ok())
      << "to whoever shows a certificate";
  options.listeners.push_back({.address = "127.0.0.1:0", .route = ""});
  EXPECT_THAT(std::string(ProxyServer::Validate(options, {.policy = SchedulePolicy::kGrants}).message()),
              AllOf(HasSubstr("listen: \"127.0.0.1:0\" would let anybody"), HasSubstr("unix:PATH"),
                    HasSubstr("tls:host:port")));
  options.listener_tls.reset();
  options.listeners = {{.address = "127.0.0.1:0", .route = ""}};
  options.tls->certificate_file.clear();
  EXPECT_TRUE(ProxyServer::Validate(options, {.policy = SchedulePolicy::kGrants}).ok())
      << "TLS without a certificate of its own";
}

TEST_F(ProxyServerTest, ListenersWithTlsNeedItsFilesAndTheFilesSuchAListener) {
  const auto error = [](const ProxyServer::Options& options) {
    const absl::Status refused = ProxyServer::Validate(options, {.policy = SchedulePolicy::kGrants});
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
    return std::string(refused.message());
  };
  ProxyServer::Options options{.listeners = {{.address = "127.0.0.1:0", .route = "", .tls = true}}};
  EXPECT_THAT(error(options), HasSubstr("listen: \"tls:127.0.0.1:0\" without listener_tls; give its certificate"));
  options.listener_tls = kListenerTls;
  EXPECT_TRUE(ProxyServer::Validate(options, {.policy = SchedulePolicy::kGrants}).ok());
  options.listener_tls->files.client_ca_file = "";
  EXPECT_THAT(error(options), HasSubstr("listener_tls.client_ca is empty"));
  options.listener_tls = kListenerTls;
  options.listeners[0].address = "unix:/run/s";
  EXPECT_THAT(error(options), HasSubstr("listen: \"tls:unix:/run/s\" must be tls:host:port"));
  options.listeners[0].tls = false;
  EXPECT_THAT(error(options), HasSubstr("listener_tls is given and has no effect"));
}

TEST_F(ProxyServerTest, FilesOfAListenerThatAreNotThereAreNotFound) {
  StartProxy();
  const absl::Status refused =
      ProxyServer::Start(
          link_, {.listeners = {{.address = "127.0.0.1:0", .route = "", .tls = true}}, .listener_tls = kListenerTls})
          .status();
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("listener_tls.client_ca: \"a.pem\""));
}

TEST_F(ProxyServerTest, AnAddressThatIsTakenIsUnavailable) {
  StartProxy();
  EXPECT_THAT(ProxyServer::Start(
                  link_, {.listeners = {{.address = "127.0.0.1:0", .route = ""}, {.address = address(), .route = ""}}})
                  .status(),
              HasCode(absl::StatusCode::kUnavailable));
}

// --- Who may connect.

TEST_F(ProxyServerTest, OnlyTheUsersThatAreNamedMayConnectToUnixSockets) {
  TestHttp2Server worker(Says("!"));
  options_.listeners = {{.address = AbstractAddress("users"), .route = ""}, {.address = "127.0.0.1:0", .route = ""}};
  options_.client_users = {geteuid() + 1};
  StartProxy();
  EXPECT_EQ(ConnectTo(address(0)).ReceiveAll(), "");
  const auto client = ClientOf(address(1));
  const auto& call = client->Open(Head(worker.address()), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); })) << "the kernel does not say who it is";
  proxy_.reset();
  options_.client_users = {geteuid() + 1, geteuid()};
  StartProxy();
  ExpectServes(worker.address());
}

// By name, through a tunnel, and even for workers that other users may call; until the options change.
TEST_F(ProxyServerTest, AUserWithWorkersOfItsOwnCallsThoseAlone) {
  TestHttp2Server own(Says("own"));
  TestHttp2Server common(Says("common"));
  options_.listeners = {{.address = AbstractAddress("groups"), .route = ""}, {.address = "127.0.0.1:0", .route = ""}};
  options_.workers = {common.address()};
  options_.clients = {{.users = {geteuid()}, .names = {}, .workers = {own.address()}}};
  options_.proxy.pass_tunnels = false;
  StartProxy();
  const auto local = ClientOf(address(0));
  const auto other = ClientOf(address(1));  // the proxy cannot identify this client
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(StatusOf(*local, own.address()), "0");
    EXPECT_EQ(StatusOf(*local, common.address()), "7");
    EXPECT_EQ(StatusOf(*other, common.address()), "0");
    EXPECT_EQ(StatusOf(*other, own.address()), "7");
  }
  const auto connect = [&](const std::string& worker) {
    TestSocket socket = ConnectTo(address(0));
    socket.Send(absl::StrCat("CONNECT ", worker, " HTTP/1.1\r\n\r\n"));
    return socket;
  };
  TestSocket tunnel = connect(own.address());
  EXPECT_THAT(tunnel.ReceiveUntil("\r\n\r\n"), HasSubstr("200"));
  Http2Peer in_tunnel(std::move(tunnel));
  EXPECT_EQ(StatusOf(in_tunnel, own.address()), "0");
  EXPECT_THAT(connect(common.address()).ReceiveUntil("\r\n\r\n"), HasSubstr("403"));

  ProxyServer::Options changed = options_;
  changed.clients.clear();
  ASSERT_TRUE(proxy_->Reconfigure(changed).ok());
  EXPECT_EQ(StatusOf(*local, own.address()), "7") << "on a connection that was made before";
  EXPECT_EQ(StatusOf(*local, common.address()), "0");
}

// --- Limits.

TEST_F(ProxyServerTest, CallsAboveTheirNumberAreRefused) {
  options_.proxy.max_calls = 3;
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  const auto client = NewClient();
  for (int i = 0; i < 3; ++i) client->Open(Head(worker.address()), FrameMessage("?"));
  const auto& fourth = client->Open(Head(worker.address()), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return fourth.closed.has_value(); }));
  EXPECT_EQ(fourth.status(), "8");
  EXPECT_THAT(fourth.Field("grpc-message"), ::testing::HasSubstr("limits.calls is 3"));
  EXPECT_TRUE(worker.AwaitRequests(3));
}

TEST_F(ProxyServerTest, OneWorkerThatHangsLeavesRoomForTheCallsOfOthers) {
  options_.proxy.max_calls = 300;
  StartProxy();
  TestHttp2Server hung([](TestHttp2Server::Call&) {});
  TestHttp2Server healthy(Says("!"));
  ExpectServes(healthy.address());
  const auto client = NewClient();
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 300; }));
  std::vector<const Http2Peer::Stream*> calls;
  for (int i = 0; i < 300; ++i) calls.push_back(&client->Open(Head(hung.address()), FrameMessage("?")));
  EXPECT_TRUE(Await({client.get()}, [&] {
    return std::count_if(calls.begin(), calls.end(), [](const auto* call) { return call->closed.has_value(); }) == 150;
  }));
  EXPECT_TRUE(hung.AwaitRequests(150));
  EXPECT_EQ(calls.back()->status(), "8");
  EXPECT_THAT(calls.back()->Field("grpc-message"),
              ::testing::AllOf(::testing::HasSubstr(hung.address()), ::testing::HasSubstr("150 calls of this worker"),
                               ::testing::HasSubstr("limits.calls is 300")));
  ExpectServes(healthy.address());
}

TEST_F(ProxyServerTest, TheOnlyWorkerMayHaveAllCalls) {
  options_.proxy.max_calls = 300;
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  const auto client = NewClient();
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 300; }));
  for (int i = 0; i < 300; ++i) client->Open(Head(worker.address()), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return worker.counts().requests == 300; }));
}

// The stream of a cancelled call may wait to send its reset, and exists until then.
TEST_F(ProxyServerTest, CallsThatWereCancelledCountForAsLongAsTheyAreThere) {
  options_.proxy.max_calls = 150;
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  const auto client = NewClient();
  int refused = 0;
  for (int i = 0; i < 300 && refused == 0; ++i) {
    const auto& call = client->Open(Head(worker.address()), FrameMessage("?"));
    EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value() || worker.counts().requests > i; }));
    if (call.status() == "8") ++refused;
    if (!call.closed.has_value()) client->session().Reset(call.id, Http2Error::kCancel);
  }
  EXPECT_EQ(refused, 1);
  EXPECT_GE(worker.counts().requests, 150);
}

TEST_F(ProxyServerTest, AClientIsToldHowManyStreamsItMayOpen) {
  options_.proxy.max_streams = 5;
  StartProxy();
  const auto client = NewClient();
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() == 5; }));
}

TEST_F(ProxyServerTest, AHeadThatIsTooLargeEndsItsCallAlone) {
  options_.proxy.max_header_bytes = 4096;
  StartProxy();
  TestHttp2Server worker(Says("!"));
  const auto client = NewClient();
  const auto& large = client->Open(Head(worker.address(), {{"x-large", std::string(5000, 'x')}}), FrameMessage("?"));
  const auto& call = client->Open(Head(worker.address(), {{"x-small", std::string(3000, 'x')}}), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().streams() == 0; }));
  EXPECT_TRUE(large.is(Kind::kReset, Http2Error::kEnhanceYourCalm));
  EXPECT_EQ(call.status(), "0");
  EXPECT_EQ(worker.counts().requests, 1);
}

// --- Changes.

TEST_F(ProxyServerTest, NewCallsFollowNewOptions) {
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call& call) {
    if (call.request() != "hold") call.Answer("!");
  });
  const auto client = NewClient();
  const auto& held = client->Open(Head(worker.address()), FrameMessage("hold"));
  ASSERT_TRUE(worker.AwaitRequests(1));
  ProxyServer::Options changed = options_;
  changed.workers = {"10.0.0.0/8"};
  ASSERT_TRUE(proxy_->Reconfigure(changed).ok());
  const auto& denied = client->Open(Head(worker.address()), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return denied.closed.has_value(); }));
  EXPECT_EQ(denied.status(), "7");
  EXPECT_FALSE(held.closed.has_value()) << "what began before goes on";
  worker.Run([&] { worker.calls().front()->Answer("late"); });
  EXPECT_TRUE(Await({client.get()}, [&] { return held.closed.has_value(); }));
  EXPECT_EQ(held.status(), "0");
  ASSERT_TRUE(proxy_->Reconfigure(options_).ok());
  ExpectServes(worker.address());
}

TEST_F(ProxyServerTest, WhatCannotChangeChangesNothing) {
  StartProxy();
  TestHttp2Server worker(Says("!"));
  const auto expect_refused = [&](const std::function<void(ProxyServer::Options&)>& change) {
    ProxyServer::Options changed = options_;
    changed.workers = {"10.0.0.0/8"};
    change(changed);
    EXPECT_THAT(proxy_->Reconfigure(changed), HasCode(absl::StatusCode::kInvalidArgument));
    ExpectServes(worker.address());
  };
  expect_refused([](auto& options) { options.listeners[0].address = "127.0.0.1:1"; });
  expect_refused([](auto& options) { options.listeners[0].route = "w:1"; });
  expect_refused([](auto& options) { options.listeners.push_back(options.listeners[0]); });
  expect_refused([](auto& options) { options.client_users = {7}; });
  expect_refused([](auto& options) { options.socket_mode = 0600; });
  expect_refused([](auto& options) { options.tls = TlsOptions(); });
  expect_refused([](auto& options) {
    options.listeners[0].tls = true;
    options.listener_tls = kListenerTls;
  });
  expect_refused([](auto& options) { options.proxy.max_calls = 0; });
}

// --- The end.

TEST_F(ProxyServerTest, ADrainLetsCallsEndAndSendsNewOnesElsewhere) {
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.SendHead(); });
  const auto client = NewClient();
  const auto idle = NewClient();
  const auto& call = client->Open(Head(worker.address()), FrameMessage("?"));
  ASSERT_TRUE(worker.AwaitRequests(1));
  const std::string before = address();
  std::future<size_t> drained = std::async(std::launch::async, [&] { return proxy_->Drain(kPatience); });
  EXPECT_TRUE(Await({client.get(), idle.get()}, [&] { return client->session().going_away() && idle->over(); }));
  EXPECT_FALSE(call.closed.has_value());
  EXPECT_EQ(client->session().open_slots(), 0U);
  worker.Run([&] {
    worker.calls().front()->SendData(FrameMessage("late"));
    worker.calls().front()->SendTrailers();
  });
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.data, FrameMessage("late"));
  EXPECT_EQ(call.status(), "0");
  EXPECT_TRUE(Await({client.get()}, [&] { return client->over(); }));
  EXPECT_EQ(drained.get(), 0U);
}

// When the last call ends, more bytes are on their way than the sockets hold.
TEST_F(ProxyServerTest, ADrainEndsNoConnectionBeforeItsAnswersHaveLeft) {
  options_.listeners = {{.address = AbstractAddress("drain"), .route = ""}};
  options_.proxy.max_held_bytes_per_call = 16 << 20;
  StartProxy();
  const std::string answer(5 << 20, 'x');
  TestHttp2Server worker([&](TestHttp2Server::Call& call) { call.Answer(answer); });
  const auto client = NewClient();
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 100; }));
  const auto& call = client->Open(Head(worker.address()), FrameMessage("?"), true, 1 << 30);
  EXPECT_TRUE(worker.Await([](const auto& counts) { return counts.requests == 1; }));
  const auto idle = NewClient();
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 2));
  std::future<size_t> drained = std::async(std::launch::async, [&] { return proxy_->Drain(kPatience); });
  // The test reads nothing before the idle connection has ended.
  EXPECT_TRUE(Await({idle.get()}, [&] { return idle->over(); }));
  EXPECT_TRUE(Await({client.get()}, [&] { return client->over(); }));
  EXPECT_EQ(call.data.size(), answer.size() + 5);
  EXPECT_EQ(call.status(), "0");
  EXPECT_EQ(drained.get(), 0U);
}

TEST_F(ProxyServerTest, ADrainThatTakesTooLongSaysHowManyCallsAreLeft) {
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  const auto client = NewClient();
  for (int i = 0; i < 3; ++i) client->Open(Head(worker.address()), FrameMessage("?"));
  ASSERT_TRUE(worker.AwaitRequests(3));
  EXPECT_EQ(proxy_->Drain(absl::Milliseconds(1)), 3U);
  proxy_.reset();
  EXPECT_TRUE(Await({client.get()}, [&] { return client->over(); }));
  for (const auto* call : client->streams()) EXPECT_EQ(call->status(), "14");
}

TEST_F(ProxyServerTest, AnEndWithEverythingUnderWayLeavesNothing) {
  StartProxy();
  // More calls than may be reset at once, so that some of them outlive the proxy. Their connections end with them.
  TestHttp2Server worker([](TestHttp2Server::Call& call) {
    if (call.stream() % 4 == 1) call.SendHead();
  });
  std::vector<std::unique_ptr<Http2Peer>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(NewClient());
    for (int j = 0; j < 60; ++j) {
      clients.back()->Open(Head(worker.address()), FrameMessage("?"), /*end_stream=*/true);
    }
    clients.back()->Open(Head("localhost:1"), FrameMessage("?"));
  }
  ASSERT_TRUE(worker.AwaitRequests(180));
  for (const auto& client : clients) client->Open(Head("no.such.name.invalid:1"), FrameMessage("?"));
  proxy_.reset();
  for (const auto& client : clients) EXPECT_TRUE(Await({client.get()}, [&] { return client->over(); }));
  EXPECT_EQ(Metric("sluice_proxy_calls"), 0);
  EXPECT_EQ(Metric("sluice_proxy_connections"), 0);
  EXPECT_TRUE(worker.Await([](const auto& counts) { return counts.open_connections == 0; }));
}

}  // namespace
}  // namespace sluice::testing
