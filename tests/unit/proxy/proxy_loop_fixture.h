#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/net/asio_listener.h"
#include "lib/proxy/proxy_loop.h"
#include "tests/unit/proxy/names_executor.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {

// A proxy whose names and clock the test controls.
class ProxyLoopTest : public ProxyTest {
 protected:
  void StartProxy(ProxyOptions options = {}, const ScheduleOptions& schedule = Ample()) {
    executor_.Await([&] {
      loop_ = std::make_unique<LinkLoop>(names_, schedule, metrics_);
      proxy_ = std::make_unique<ProxyLoop>(*loop_, *ClientPolicies::Create({std::string("127.0.0.0/8"), "::1"}, {}),
                                           nullptr, options, proxy_metrics_);
      auto listener = AsioListener::Listen(
          executor_, "127.0.0.1:0", {.half_open = true}, [this](const AcceptedConnection& connection) {
            proxy_->Accept({.route = "", .local = true, .peer = connection.peer, .user = user_}, connection.start);
          });
      ASSERT_TRUE(listener.ok()) << listener.status();
      listener_ = *std::move(listener);
    });
  }
  void TearDown() override {
    executor_.Await([&] {
      listener_.reset();
      proxy_.reset();
      loop_.reset();
    });
  }

  std::unique_ptr<Http2Peer> NewClient() {
    auto client = std::make_unique<Http2Peer>(ConnectTo(listener_->address()));
    client->Flush();
    return client;
  }
  void SetName(const std::string& name, const NamesExecutor::Addresses& addresses) {
    executor_.Await([&] { names_.SetName(name, addresses); });
  }
  size_t OpenQuestions(const std::string& name) {
    size_t questions = 0;
    executor_.Await([&] { questions = names_.open_questions(name); });
    return questions;
  }
  std::vector<std::string> ConnectedTo() {
    std::vector<std::string> addresses;
    executor_.Await([&] { addresses = names_.connected_to(); });
    return addresses;
  }
  // Whether the proxy is connected to this address of a name.
  bool Connected(const std::string& address, const std::string& host) {
    bool connected = false;
    executor_.Await([&] { connected = loop_->workers().Find(address, nullptr, host)->connected(); });
    return connected;
  }
  // Makes one call and waits for it. Returns "OK", or the code with its message.
  std::string Call(Http2Peer& client, const std::string& target) {
    const Http2Peer::Stream& call = client.Open(Head(target), FrameMessage("?"));
    EXPECT_TRUE(Await({&client}, [&] { return call.closed.has_value(); }));
    return call.status() == "0" ? "OK" : absl::StrCat(call.status(), " ", call.Field("grpc-message"));
  }

  std::optional<uint32_t> user_;  // of the clients
  prometheus::Registry registry_;
  LinkMetrics metrics_{registry_};
  ProxyMetrics proxy_metrics_{registry_};
  AsioExecutor executor_;
  // Used on the link's thread.
  NamesExecutor names_{executor_};
  std::unique_ptr<LinkLoop> loop_;
  std::unique_ptr<ProxyLoop> proxy_;
  std::unique_ptr<AsioListener> listener_;
};

}  // namespace sluice::testing
