// Sends arbitrary bytes of a client to a proxy with responding workers, in virtual time. Workers must receive only
// valid HTTP/2 and gRPC calls, and the bytes held for the client must be bounded. After the client has closed, every
// call must end and the link must be idle.
//
// The input has one byte of choices, one for the size of the pieces, then the bytes. The last byte of a call's path
// selects the action of its worker.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "lib/grpc_wire/request.h"
#include "lib/link/link_metrics.h"
#include "lib/proxy/proxy_loop.h"
#include "prometheus/registry.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/scripted_workers.h"

namespace sluice {
namespace {

constexpr int64_t kHeldPerCall = 16 << 10;

prometheus::Registry& Registry() {
  static auto* const registry = new prometheus::Registry();
  return *registry;
}
// Created once, because metrics cost more than a run.
LinkMetrics& Metrics() {
  static auto* const metrics = new LinkMetrics(Registry());
  return *metrics;
}
ProxyMetrics& MetricsOfProxy() {
  static auto* const metrics = new ProxyMetrics(Registry());
  return *metrics;
}

ScriptedAnswer Answer(const std::string& path, const std::string& request) {
  switch (path.back() % 8) {
    case 0:
      return {.data = FrameMessage(request)};
    case 1:
      return {.data = FrameMessage(std::string(200'000, 'x'))};
    case 2:
      return {.data = FrameMessage("a") + FrameMessage("") + FrameMessage(std::string(70'000, 'y'))};
    case 3:
      return {.status = absl::NotFoundError("none")};
    case 4:
      return {.data = FrameMessage("begun"), .end = ScriptedAnswer::End::kReset};
    case 5:
      return {.data = FrameMessage("begun"), .end = ScriptedAnswer::End::kLost};
    case 6:
      return {.data = FrameMessage("begun"), .end = ScriptedAnswer::End::kHang};
    default:
      return {.data = "no message"};
  }
}

// The client's connection, as the proxy sees it.
struct Wire {
  StreamSocketEvents* events = nullptr;  // null once the proxy has closed it
  std::string said;                      // by the proxy
  size_t unsent_bytes = 0;
  bool taken = true;  // whether the client reads
  bool reading = true;
};

class WireEnd final : public StreamSocket {
 public:
  explicit WireEnd(Wire& wire) : wire_(wire) {}
  ~WireEnd() override { wire_.events = nullptr; }
  void Write(std::string bytes) override {
    FUZZ_CHECK(wire_.events != nullptr);
    wire_.said += bytes;
    if (!wire_.taken) wire_.unsent_bytes += bytes.size();
  }
  size_t unsent_bytes() const override { return wire_.unsent_bytes; }
  void SetReading(bool reading) override { wire_.reading = reading; }
  std::optional<TcpSocket> Tcp() const override { return std::nullopt; }

 private:
  Wire& wire_;
};

class ProxyClientFuzz {
 public:
  explicit ProxyClientFuzz(FuzzInput input)
      : input_(input), choice_(input_.Byte()), workers_(events_, Answer), link_(workers_, {}, Metrics()) {
    workers_.set_any_request(true);
    ProxyOptions options{.worker_header = "x-worker",
                         .pass_tunnels = false,
                         .pass_worker_tunnels = false,
                         .client_stall_timeout = std::chrono::seconds(2),
                         .max_calls = 20,
                         .max_held_bytes_per_call = kHeldPerCall};
    workers_.Turn([&] {
      loop_ = std::make_unique<ProxyLoop>(link_,
                                          *ClientPolicies::Create({std::string("10.0.0.0/8"), std::string("w*")}, {}),
                                          nullptr, options, MetricsOfProxy());
      wire_.taken = (choice_ & 1) == 0;
      loop_->Accept({.route = choice_ & 2 ? "10.0.0.7:7000" : "", .local = (choice_ & 4) != 0},
                    [this](StreamSocketEvents& events) {
                      wire_.events = &events;
                      return std::make_unique<WireEnd>(wire_);
                    });
    });
    workers_.Turn([&] { wire_.events->OnConnected(); });
  }

  void Run() {
    const size_t piece_bytes = 1 + input_.Byte() * 4;
    for (int piece = 0; !input_.empty() && wire_.events != nullptr; ++piece) {
      if (!wire_.reading) break;
      const absl::string_view bytes = input_.Take(piece_bytes);
      workers_.Turn([&] { wire_.events->OnBytes(bytes); });
      RunFor(std::chrono::microseconds(30));
      if (piece == 3 && (choice_ & 8) != 0) workers_.Turn([&] { loop_->Drain([] {}); });
      if (piece == 5 && (choice_ & 16) != 0) Drained();
      Check();
    }
    RunFor(std::chrono::milliseconds(50));
    Check();
    if ((choice_ & 32) != 0) RunFor(std::chrono::seconds(4));  // longer than the timeouts of stalled connections
    Check();
    if ((choice_ & 64) != 0) Drained();
    if ((choice_ & 128) != 0) return End();
    if (wire_.events != nullptr && (choice_ & 4) != 0) workers_.Turn([&] { wire_.events->OnEnded(); });
    if (wire_.events != nullptr) workers_.Turn([&] { wire_.events->OnDisconnected(absl::OkStatus()); });
    RunFor(std::chrono::seconds(30));
    FUZZ_CHECK(loop_->connections() == 0);
    FUZZ_CHECK(loop_->calls() == 0);
    FUZZ_CHECK(loop_->held_answers().bytes() == 0);
    const ScheduleState state = link_.schedule().State();
    FUZZ_CHECK(state.in_flight_calls == 0 && state.in_flight_bytes == 0 && state.ungranted_calls == 0);
    FUZZ_CHECK(state.submitted_calls == state.ended_calls);
    End();
  }

 private:
  // Destroys the proxy during its calls.
  void End() {
    workers_.Turn([&] { loop_.reset(); });
    FUZZ_CHECK(wire_.events == nullptr);
    RunFor(std::chrono::seconds(30));
  }
  void RunFor(TimePoint::duration time) {
    const TimePoint end = events_.now() + time;
    while (events_.Step(end)) {
    }
  }
  // The client reads all sent bytes, and continues to read.
  void Drained() {
    wire_.taken = true;
    if (wire_.events == nullptr || std::exchange(wire_.unsent_bytes, 0) == 0) return;
    workers_.Turn([&] { wire_.events->OnDrained(); });
  }
  void Check() const {
    constexpr int64_t kAtSocket = 1 << 20;
    // Each call may hold one part in addition to its limit.
    FUZZ_CHECK(loop_->held_answers().bytes() <= static_cast<int64_t>(loop_->calls()) * 2 * kHeldPerCall + kAtSocket);
    FUZZ_CHECK(static_cast<int64_t>(wire_.unsent_bytes) < kAtSocket);
  }

  FuzzInput input_;
  const uint8_t choice_;
  testing::EventQueue events_;
  ScriptedWorkers workers_;
  LinkLoop link_;
  Wire wire_;
  std::unique_ptr<ProxyLoop> loop_;
};

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::ProxyClientFuzz(sluice::FuzzInput(data, size)).Run();
  return 0;
}
