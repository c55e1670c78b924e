#include "tests/unit/fan_out/scripted_server.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lib/grpc_wire/request.h"

namespace sluice::testing {

// One call: its writes, its hold, and its end.
struct ScriptedServer::Playing {
  TestHttp2Server::Call& call;
  Script script;
  size_t next = 0;  // index of the next message
  bool head_sent = false;
  bool holds = false;
  bool writes = false;  // waits until the bytes that it sent have left

  void SendHead() {
    if (!std::exchange(head_sent, true)) call.SendHead(script.headers);
  }
};

ScriptedServer::ScriptedServer(Play play, std::optional<TlsServerEnd::Options> tls) : options_{.tls = std::move(tls)} {
  SetPlay(std::move(play));
  Start();
}

ScriptedServer::~ScriptedServer() {
  Stop();
}

void ScriptedServer::Start() {
  server_ = std::make_unique<TestHttp2Server>([this](TestHttp2Server::Call& call) { Begin(call); }, options_);
  options_.port = server_->port();
  address_ = server_->address();
}

void ScriptedServer::Stop() {
  server_.reset();
}

void ScriptedServer::SetPlay(Play play) {
  orders_.Change([&](Orders& orders) { orders = {.play = std::move(play)}; });
}

void ScriptedServer::Begin(TestHttp2Server::Call& call) {
  Seen seen{.method = call.path(),
            .authority = call.head().authority,
            .request = call.request(),
            .metadata = {call.head().metadata.begin(), call.head().metadata.end()},
            .connection = &call.connection(),
            .deadline = absl::ToChronoTime(absl::Now() + call.head().timeout)};
  counts_.Change([](Counts& counts) {
    ++counts.requests;
    counts.most_open = std::max(counts.most_open, ++counts.open);
  });
  seen_.Change([&](std::vector<Seen>& all) { all.push_back(seen); });
  const auto playing = std::make_shared<Playing>(Playing{.call = call, .script = orders_.Get().play(seen)});
  playing_.emplace(&call, playing);
  call.on_closed = [this, raw = playing.get()](StreamEnd end) { End(*raw, end); };
  call.on_writable = [this, raw = playing.get()] {
    if (std::exchange(raw->writes, false)) Step(*raw);
  };
  if (playing->script.early_headers) playing->SendHead();
  if (playing->script.delay <= absl::ZeroDuration()) return Step(*playing);
  call.server().RunAfter(absl::ToChronoNanoseconds(playing->script.delay), [this, weak = std::weak_ptr(playing)] {
    if (const auto later = weak.lock()) Step(*later);
  });
}

void ScriptedServer::Step(Playing& playing) {
  const Script& script = playing.script;
  while (true) {
    if (script.hold_before == playing.next && !orders_.Get().released) {
      playing.holds = true;
      return counts_.Change([](Counts& counts) { ++counts.holding; });
    }
    if (playing.next == script.messages.size()) return Finish(playing);
    playing.SendHead();
    std::string framed = FrameMessage(script.messages[playing.next++]);
    if (script.compressed) framed[0] = 1;
    playing.writes = playing.call.SendData(std::move(framed)) > 0;
    // Send the status with the last message, as gRPC servers do.
    const bool last = playing.next == script.messages.size() && script.hold_before != playing.next;
    if (playing.writes && !last) return;
  }
}

void ScriptedServer::Finish(Playing& playing) {
  const Script& script = playing.script;
  playing.writes = false;
  if (!playing.head_sent && script.headers.empty()) {
    return playing.call.Fail(script.status, script.status_details, script.trailers);
  }
  playing.SendHead();
  playing.call.SendTrailers(script.status, script.status_details, script.trailers);
}

void ScriptedServer::End(Playing& playing, StreamEnd end) {
  counts_.Change([&](Counts& counts) {
    --counts.open;
    if (playing.holds) --counts.holding;
    if (end.kind != StreamEnd::Kind::kComplete) ++counts.cancelled;
  });
  playing_.erase(&playing.call);
}

void ScriptedServer::Release() {
  orders_.Change([](Orders& orders) { orders.released = true; });
  server_->Run([this] {
    std::vector<std::shared_ptr<Playing>> held;
    for (const auto& [call, playing] : playing_) {
      if (std::exchange(playing->holds, false)) held.push_back(playing);
    }
    counts_.Change([](Counts& counts) { counts.holding = 0; });
    for (const auto& playing : held) Step(*playing);
  });
}

size_t ScriptedServer::connections() const {
  std::set<const void*> connections;
  for (const Seen& seen : seen_.Get()) connections.insert(seen.connection);
  return connections.size();
}

}  // namespace sluice::testing
