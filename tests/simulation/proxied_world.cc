#include "tests/simulation/proxied_world.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "sluice/endpoint.h"

#include "absl/strings/str_cat.h"

namespace sluice::testing {
namespace {

using Habit = SimulatedClient::Habit;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kClients = 4;
constexpr int64_t kHeldBytes = 256 << 10;
constexpr int64_t kHeldPerCall = 32 << 10;
// Allow one more message: the length of the next message is not known in advance.
constexpr int64_t kLargestMessage = 200'000;
constexpr seconds kStallTimeout(3);  // of clients

SimulatedNetwork::Shape DrawShape(uint64_t seed) {
  Dice dice(~seed);  // not the numbers of the network
  SimulatedNetwork::Shape shape;
  shape.faults = dice.OneIn(2);
  shape.losses = shape.faults && dice.OneIn(4);
  if (dice.OneIn(3)) shape.hung_workers = 1 + dice.Below(4);
  if (dice.OneIn(8)) shape.stream_numbers = 1 + static_cast<uint32_t>(dice.Below(8));
  DrawBadWorkers(dice, shape);
  if (dice.OneIn(2)) shape.tunnels = 1 + dice.Below(32);
  shape.tunnel_faults = dice.OneIn(2);
  DrawSwitches(dice, shape);
  return shape;
}

}  // namespace

ProxiedWorld::ProxiedWorld(uint64_t seed)
    : network_(seed, DrawShape(seed)), dice_(network_.dice), events_(network_.events) {
  metrics_ = std::make_unique<ProxyMetrics>(*network_.registry);
  network_.executor->Turn([this] {
    proxy_ =
        std::make_unique<ProxyLoop>(*network_.loop, *ClientPolicies::Create({std::string("10.0.0.0/8")}, {}), nullptr,
                                    ProxyOptions{.client_stall_timeout = kStallTimeout,
                                                 .tunnel_stall_timeout = kStallTimeout,
                                                 .max_calls = 256,
                                                 .max_held_bytes = kHeldBytes,
                                                 .max_held_bytes_per_call = kHeldPerCall},
                                    *metrics_);
  });
  tunnels_ = std::make_unique<TunnelCrowd>(network_, [this](AcceptedSocket client) {
    network_.executor->Turn([&] { proxy_->Accept({.route = "", .local = true}, std::move(client)); });
  });
  drains_ = dice_.OneIn(3);
  for (size_t i = 0; i < kClients; ++i) {
    const Habit habit = i == 0 || !dice_.OneIn(3) ? Habit::kReads
                        : dice_.OneIn(2)          ? Habit::kKeepsWindows
                                                  : Habit::kReadsNothing;
    clients_.push_back(NewClient(habit));
  }
}

ProxiedWorld::~ProxiedWorld() {
  network_.executor->Turn([this] { proxy_.reset(); });
  network_.loop.reset();
}

std::shared_ptr<SimulatedClient> ProxiedWorld::NewClient(Habit habit) {
  auto client = std::make_shared<SimulatedClient>(events_, dice_, *network_.executor, habit);
  network_.executor->Turn([&] { proxy_->Accept({.route = "", .local = true}, client->Connect()); });
  return client;
}

// Returns a random client. A client whose connection is over connects again.
std::shared_ptr<SimulatedClient>& ProxiedWorld::NextClient() {
  auto& client = clients_[dice_.Below(clients_.size())];
  if (client->over()) client = NewClient(client->habit());
  return client;
}

void ProxiedWorld::Run() {
  TimePoint next = events_.now();
  while (calls_ < kMinCalls) {
    while (events_.Step(next)) CheckHeld();
    StartFanOut();
    tunnels_->Ask();
    next = events_.now() + microseconds(dice_.Between(0, dice_.OneIn(3) ? 200'000 : 2000));
  }
  tunnels_->Stop();
  const TimePoint tunnel_end = events_.now() + seconds(120);
  while (tunnels_->open() > 0 && events_.Step(tunnel_end)) CheckHeld();
  tunnels_->CheckEnd();
  if (drains_) {
    network_.executor->Turn([this] { proxy_->Drain([this] { drained_ = true; }); });
  }
  const TimePoint end = events_.now() + seconds(120);
  while (open_ > 0 && events_.Step(end)) CheckHeld();
  CheckEnd();
}

void ProxiedWorld::StartFanOut() {
  const std::shared_ptr<SimulatedClient> client = NextClient();
  const size_t messages = dice_.OneIn(4) ? dice_.Below(4) : 1;
  const uint64_t key = dice_.Below(1 << 20);
  const bool long_deadline = network_.shape.hung_workers == 0 && !dice_.OneIn(4);
  const TimePoint deadline =
      events_.now() + (long_deadline ? TimePoint::duration(seconds(60)) : milliseconds(dice_.Between(1, 2000)));
  const size_t mean = dice_.OneIn(16) ? kLargestMessage / 2 : 12'000;
  std::vector<size_t> asked;
  for (size_t worker = 0; worker < network_.workers.size(); ++worker) {
    if (!dice_.OneIn(4)) asked.push_back(worker);
  }
  HeaderList metadata;
  if (dice_.OneIn(2)) {
    metadata.push_back({std::string(kBlockField), absl::StrCat("fan-out-", ++blocks_)});
    // Some fan-outs state a weight that is too large, so some of the calls never come.
    metadata.push_back({std::string(kWeightField), absl::StrCat(asked.size() + dice_.Below(2))});
  }
  const size_t traffic_class = network_.DrawClass();
  if (!network_.schedule.classes.empty() && !dice_.OneIn(3)) {
    metadata.push_back({std::string(kClassField), network_.schedule.classes[traffic_class].name});
  }
  for (const size_t worker : asked) {
    SimulatedClient::Request request{.worker = network_.addresses[worker],
                                     .question = {.key = key,
                                                  .bytes = dice_.OneIn(10) ? dice_.Below(3) : dice_.Below(2 * mean),
                                                  .messages = messages,
                                                  .streaming = messages != 1,
                                                  .taken = client->habit() == Habit::kReads},
                                     .deadline = deadline,
                                     .metadata = metadata,
                                     .in_two_parts = dice_.OneIn(5)};
    if (dice_.OneIn(5)) {
      const size_t said = request.question.bytes / (dice_.OneIn(4) ? 2 : 1);  // some sizes are wrong
      request.metadata.push_back({std::string(kResponseBytesField), absl::StrCat(said)});
    }
    const bool healthy = worker >= network_.shape.hung_workers && !network_.IsSlow(worker) && !network_.shape.faults;
    Ask(client, std::move(request), healthy && long_deadline);
  }
  if (dice_.OneIn(40)) {
    network_.faults.Count(Fault::kClientGone);
    events_.After(microseconds(dice_.Between(0, 20'000)), [client] { client->Die(); });
  }
}

void ProxiedWorld::Ask(const std::shared_ptr<SimulatedClient>& client, SimulatedClient::Request request, bool healthy) {
  const bool cancels = dice_.OneIn(20);
  const bool reads = client->habit() == Habit::kReads;
  if (!reads) network_.faults.Count(Fault::kHungClient);
  // The proxy does not read from a client that reads nothing, so half of the request may never come. With `rolling`, it
  // holds the charge of its response like a hung worker.
  if (!reads && request.in_two_parts) network_.liveness->HangBegins();
  // A client that reads gets a right response from a healthy worker. The client owns this callback, so capture a plain
  // pointer.
  const auto on_outcome = [this, request, must = healthy && reads && !cancels, reads,
                           client = client.get()](const auto& outcome) {
    if (reads) --open_;
    OnOutcome(request, outcome, must && !client->dying());
  };
  const int32_t stream = client->Ask(request, on_outcome);
  if (stream == 0) return;
  ++calls_;
  if (reads) ++open_;
  if (!cancels) return;
  network_.faults.Count(Fault::kCancelled);
  events_.After(microseconds(dice_.Between(0, 20'000)), [client, stream] { client->Cancel(stream); });
}

void ProxiedWorld::OnOutcome(const SimulatedClient::Request& request, const SimulatedClient::Outcome& outcome,
                             bool must_be_right) {
  network_.Note(outcome.code.has_value() ? static_cast<uint64_t>(*outcome.code) : 99);
  network_.Note(outcome.bytes);
  const bool ok = outcome.code == absl::StatusCode::kOk;
  if (ok && outcome.right) ++answered_;
  if (ok && !outcome.right) ++wrong_;
  if (must_be_right && !(ok && outcome.right)) {
    network_.Breach(absl::StrCat("a call to ", request.worker, " got ", outcome.bytes, " bytes and ",
                                 outcome.code.has_value() ? absl::StatusCodeToString(*outcome.code) : "no status"));
  }
}

void ProxiedWorld::CheckHeld() {
  // The proxy ends the calls that hold more than their share once it holds twice the bound.
  const int64_t most = 3 * kHeldBytes;
  if (proxy_->held_answers().bytes() > most) {
    network_.Breach(absl::StrCat(proxy_->held_answers().bytes(), " bytes are held for ", proxy_->calls(), " calls"));
  }
}

void ProxiedWorld::CheckEnd() {
  if (open_ > 0) network_.Breach(absl::StrCat(open_, " calls have not ended"));
  // Wait longer: a client that does not read loses its calls, and an attempt to connect without a reply ends after 5 s.
  network_.CheckIdle(seconds(60) + 2 * kStallTimeout);
  if (proxy_->calls() > 0) network_.Breach(absl::StrCat(proxy_->calls(), " calls are left in the proxy"));
  if (proxy_->held_answers().bytes() != 0)
    network_.Breach(absl::StrCat(proxy_->held_answers().bytes(), " bytes are left held"));
  if (drains_ && !drained_) network_.Breach(absl::StrCat(proxy_->connections(), " connections have not drained"));
  // A faulty worker may have sent a wrong message, and the proxy does not check messages.
  const auto& hits = network_.faults.hits;
  const uint64_t may_be_wrong = hits[static_cast<size_t>(Fault::kCorrupt)] + hits[static_cast<size_t>(Fault::kShort)] +
                                hits[static_cast<size_t>(Fault::kExtraMessage)];
  if (wrong_ > may_be_wrong) network_.Breach(absl::StrCat(wrong_, " answers are wrong, ", may_be_wrong, " by a fault"));
}

}  // namespace sluice::testing
