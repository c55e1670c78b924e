#include "tests/simulation/simulated_world.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/request.h"
#include "lib/net/clock.h"
#include "lib/tls/tls_context.h"

namespace sluice::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Turns of the link's thread are late by at most 5 ms, which may add up, and timers by 1 ms.
constexpr std::chrono::milliseconds kLateness(50);
// One in this many worlds is a storm.
constexpr uint64_t kStormOneIn = 32;
constexpr size_t kStormCalls = 5000;
constexpr size_t kStormWorkers = 2;
// One in this many worlds has thousands of streams, which take as long as a storm.
constexpr uint64_t kStreamsOneIn = 256;
constexpr size_t kHeldStreams = 2000;
// The mean bytes of a response of a scan, of a query of the same method, and of others.
constexpr size_t kScanBytes = 100'000;
constexpr size_t kQueryBytes = 500;
constexpr size_t kOtherBytes = 12'000;

SimulatedNetwork::Shape DrawShape(uint64_t seed) {
  Dice dice(~seed);  // not the numbers of the network
  SimulatedNetwork::Shape shape{.workers = SimulatedWorld::kMinWorkers};
  // Without the dice, so that any range of seeds has its share of storms.
  shape.storm = seed % kStormOneIn == 0;
  shape.faults = !shape.storm && !dice.OneIn(4);
  shape.losses = shape.faults && dice.OneIn(4);
  if (dice.OneIn(4)) shape.workers += dice.Below(17);
  if (dice.OneIn(4)) shape.hung_workers = 1 + dice.Below(4);
  if (shape.storm) shape.hung_workers = kStormWorkers;
  if (dice.OneIn(8)) shape.stream_numbers = 1 + static_cast<uint32_t>(dice.Below(8));
  if (!shape.storm) {
    DrawBadWorkers(dice, shape);
    if (dice.OneIn(32)) shape.dead_addresses = 200 + dice.Below(2801);
    shape.hurried = dice.OneIn(4);
  }
  DrawSwitches(dice, shape);
  DrawNeighbours(dice, shape);
  if (seed % kStreamsOneIn == kStormOneIn / 2) {  // not a storm
    shape.neighbours = Neighbours::kStreams;
    shape.switches = false;
    shape.dead_addresses = 0;
  }
  return shape;
}

// One context for all worlds, since it reads the certificate authorities of the system. No connection here verifies
// them.
std::shared_ptr<TlsContext> Tls() {
  static const auto& tls = *new std::shared_ptr<TlsContext>(*TlsContext::Create({}, [] { return TimePoint(); }));
  return tls;
}

}  // namespace

// One fan-out, with its results.
struct SimulatedWorld::Asked {
  bool streaming = false;
  size_t messages = 1;
  uint64_t key = 0;
  size_t traffic_class = 0;
  std::vector<size_t> bytes;  // by worker; may be 0
  std::vector<bool> asked;
  std::vector<size_t> merged;  // by worker
  size_t fail_limit = 0;
  std::optional<size_t> quorum;
  TimePoint started;
  TimePoint deadline;
  bool done = false;
};

SimulatedWorld::SimulatedWorld(uint64_t seed)
    : network_(seed, DrawShape(seed)), dice_(network_.dice), events_(network_.events), shape_(network_.shape) {
  callbacks_ = std::make_unique<SimulatedCallbacks>(events_, dice_, network_.faults, dice_.OneIn(4) ? 4 : 50);
  network_.liveness->SetReadingTime([this] { return callbacks_->busy_time(); });
  addresses_ = std::make_shared<std::vector<std::string>>(network_.addresses);
  dead_addresses_ = std::make_shared<std::vector<std::string>>(network_.dead_addresses);
  network_.executor->Turn([this] {
    const auto tls = shape_.dead_addresses > 0 ? Tls() : nullptr;
    fan_out_ = std::make_unique<FanOutState>(*network_.loop, *callbacks_, tls);
    fan_out_->SetWorkers(addresses_);
    if (tls == nullptr) return;
    dead_fan_out_ = std::make_unique<FanOutState>(*network_.loop, *callbacks_, tls);
    dead_fan_out_->SetWorkers(dead_addresses_);
  });
}

SimulatedWorld::~SimulatedWorld() {
  network_.executor->Turn([this] {
    dead_fan_out_.reset();
    fan_out_.reset();
  });
  network_.loop.reset();
}

void SimulatedWorld::Run() {
  const bool connect = dice_.OneIn(2);
  if (connect)
    network_.executor->Turn([this] { fan_out_->Connect(absl::Seconds(1), [](const std::vector<size_t>&) {}); });
  if (dead_fan_out_ != nullptr) {
    events_.After(milliseconds(dice_.Between(0, 500)), [this] {
      if (dead_fan_out_ == nullptr) return;  // the world has already ended
      network_.executor->Turn([this] { dead_fan_out_->Connect(absl::Seconds(1), [](const std::vector<size_t>&) {}); });
    });
  }
  for (size_t i = 0; shape_.neighbours == Neighbours::kStreams && i < kHeldStreams; i += shape_.workers) {
    StartFanOut(Kind::kHeldStreams);
  }
  calls_ = 0;
  TimePoint next = events_.now();
  const size_t calls = shape_.storm ? kStormCalls : kMinCalls;
  while (calls_ < calls) {
    while (events_.Step(next)) {
    }
    StartFanOut(DrawKind());
    if (dead_fan_out_ != nullptr && dice_.OneIn(4)) AskTheDead();
    if (shape_.large_heads && dice_.OneIn(20)) network_.FailAll(milliseconds(dice_.Between(1, 20)));
    const bool pause = !shape_.storm && !shape_.hurried && dice_.OneIn(3);
    const int64_t longest_us = pause ? 100'000 : shape_.storm ? 5000 : 500;
    next = events_.now() + microseconds(dice_.Between(0, longest_us));
  }
  // Every fan-out has a deadline, so all of them end.
  const TimePoint end = events_.now() + std::chrono::seconds(120);
  while (open_ > 0 && events_.Step(end)) {
  }
  if (open_ > 0) network_.Breach(absl::StrCat(open_, " fan-outs have not ended"));
  CloseTheDead();
  // An attempt to connect without a reply ends after 5 s. After a storm, and with thousands of streams, calls wait for
  // their resets.
  const bool waits = shape_.storm || shape_.neighbours == Neighbours::kStreams;
  network_.CheckIdle(std::chrono::seconds(waits ? 600 : 15));
}

SimulatedWorld::Kind SimulatedWorld::DrawKind() {
  if (shape_.neighbours == Neighbours::kScans) return dice_.OneIn(4) ? Kind::kScan : Kind::kQuery;
  return shape_.neighbours == Neighbours::kErrors && dice_.OneIn(2) ? Kind::kErrors : Kind::kOther;
}

absl::Duration SimulatedWorld::DrawTimeout(Kind kind) {
  // Not at one time: the resets of thousands of streams would overflow the port.
  if (kind == Kind::kHeldStreams) return absl::Milliseconds(dice_.Between(1000, 2500));
  const bool may_hang = shape_.hung_workers > 0 || shape_.neighbours == Neighbours::kHung;
  const bool long_deadline = may_hang || kind == Kind::kScan || dice_.OneIn(2);
  if (kind == Kind::kQuery && !long_deadline) {
    // The time in which scans of all workers come.
    const auto bytes = static_cast<double>(2 * kScanBytes * shape_.workers);
    const absl::Duration expected = absl::Seconds(bytes / network_.schedule.profile.capacity_bytes_per_second);
    if (scanned_) network_.faults.Count(Fault::kShortDeadline);
    return expected / static_cast<double>(dice_.Between(2, 8));
  }
  if (shape_.hurried && kind == Kind::kOther) {
    return dice_.OneIn(2) ? absl::Seconds(30) : absl::Milliseconds(dice_.Between(2, 100));
  }
  return long_deadline ? absl::Seconds(30) : absl::Milliseconds(dice_.Between(1, 1000));
}

void SimulatedWorld::StartFanOut(Kind kind) {
  auto asked = std::make_shared<Asked>();
  const size_t workers = network_.workers.size();
  const bool one_method = kind == Kind::kQuery || kind == Kind::kScan;
  asked->streaming = kind == Kind::kHeldStreams || (!one_method && dice_.OneIn(4));
  asked->messages = kind == Kind::kHeldStreams ? 3 : asked->streaming ? dice_.Below(4) : 1;
  scanned_ = scanned_ || kind == Kind::kScan;
  asked->key = dice_.Below(1 << 20);
  asked->bytes.resize(workers);
  asked->asked.resize(workers);
  asked->merged.resize(workers);
  asked->started = events_.now();
  asked->deadline = DeadlineAfter(asked->started, DrawTimeout(kind));

  const size_t mean = kind == Kind::kQuery                     ? kQueryBytes
                      : kind == Kind::kScan || dice_.OneIn(16) ? kScanBytes
                                                               : kOtherBytes;
  asked->traffic_class = kind == Kind::kHeldStreams ? 1 : one_method ? 0 : network_.DrawClass();
  ++blocks_;
  auto set = fan_out_->SetOf(addresses_);
  FanOutRun::Spec spec{.path = "/simulated.Answers/Get",
                       .server_streaming = asked->streaming,
                       .traffic_class = asked->traffic_class,
                       .workers = set,
                       .asks = {},
                       .metadata = nullptr,
                       .max_message_bytes = 1 << 20,
                       .limits = {},
                       .hedge_after_quantile = {}};
  for (size_t worker = 0; worker < workers; ++worker) {
    // A storm has few workers, and each must be reset more often than its allowance.
    if (dice_.OneIn(10) || (shape_.storm && worker >= kStormWorkers && !dice_.OneIn(16))) continue;
    if (kind == Kind::kErrors && worker >= SimulatedNetwork::kFailingWorkers) continue;
    asked->asked[worker] = true;
    asked->bytes[worker] = dice_.OneIn(10) ? dice_.Below(3) : dice_.Below(2 * mean);
    std::vector<size_t> replicas;
    for (size_t replica = worker + 1; replica < workers && dice_.OneIn(3); ++replica) replicas.push_back(replica);
    std::optional<int64_t> known;
    const auto total = static_cast<int64_t>(asked->bytes[worker] * asked->messages);
    if (!one_method && dice_.OneIn(3)) known = total;
    if (!one_method && dice_.OneIn(20)) known = total / 2;  // a stated size may be wrong
    spec.asks.push_back({.request = std::make_shared<const std::string>(
                             FrameMessage(RequestFor({.key = asked->key,
                                                      .bytes = asked->bytes[worker],
                                                      .messages = asked->messages,
                                                      .streaming = asked->streaming,
                                                      .block = blocks_,
                                                      .traffic_class = asked->traffic_class,
                                                      .deadline_ns = asked->deadline.time_since_epoch().count()}))),
                         .workers = fan_out_->OrderOf(*set, worker, replicas),
                         .primary = worker,
                         .response_bytes = known,
                         .metadata = nullptr});
  }
  const size_t asks = spec.asks.size();
  calls_ += asks;
  const bool fails =
      shape_.hung_workers > 0 || shape_.neighbours == Neighbours::kErrors || shape_.neighbours == Neighbours::kHung;
  asked->fail_limit = fails ? asks : dice_.OneIn(2) ? 0 : dice_.Below(workers);
  if (asks > 0 && dice_.OneIn(4)) asked->quorum = 1 + dice_.Below(asks);
  fan_out_->hedges().Earn(static_cast<double>(asks) * 0.1);
  fan_out_->retries().Earn(static_cast<double>(asks) * 0.2);
  spec.limits = {
      .deadline = asked->deadline,
      .fail_limit = asked->fail_limit,
      .success_quorum = asked->quorum,
      .server_streaming = asked->streaming,
      .attempt_timeout = dice_.OneIn(5) ? absl::Milliseconds(dice_.Between(5, 500)) : absl::InfiniteDuration(),
      .hedge_after = {},
      .retries = &fan_out_->retries(),
      .hedges = &fan_out_->hedges()};
  if (dice_.OneIn(3)) spec.limits.hedge_after = absl::Milliseconds(dice_.Between(1, 50));
  ++open_;
  auto sink = std::make_shared<MergeSink>(
      *fan_out_, [this, asked](size_t worker, const std::string& answer) { return OnMerge(*asked, worker, answer); },
      [this, asked](const FanOutResult& result) { OnDone(asked, result); },
      MergeSink::Options{.stop_merging = std::make_shared<std::atomic<bool>>(false)});
  const auto run = FanOutRun::Make(*fan_out_, std::move(spec), sink);
  sink->SetRun(run);
  network_.executor->Post([run] { run->Begin(); });
  const bool held = kind == Kind::kHeldStreams;
  if (!held && (shape_.storm ? !dice_.OneIn(8) : dice_.OneIn(10))) CancelLater(run);
}

// Closes the connections, since handshakes with unreachable hosts never end otherwise.
void SimulatedWorld::CloseTheDead() {
  if (dead_fan_out_ == nullptr) return;
  network_.executor->Turn([this] {
    dead_fan_out_->Close(absl::CancelledError("by the simulation"),
                         [this] { network_.executor->Post([this] { dead_fan_out_.reset(); }); });
  });
}

// Calls hosts that never respond. Other calls must not be affected.
void SimulatedWorld::AskTheDead() {
  const auto set = dead_fan_out_->SetOf(dead_addresses_);
  const TimePoint deadline = events_.now() + milliseconds(dice_.Between(1, 3000));
  FanOutRun::Spec spec{.path = "/simulated.Answers/Get",
                       .server_streaming = false,
                       .workers = set,
                       .asks = {},
                       .metadata = nullptr,
                       .limits = {.deadline = deadline,
                                  .fail_limit = dead_addresses_->size(),
                                  .retries = &dead_fan_out_->retries(),
                                  .hedges = &dead_fan_out_->hedges()},
                       .hedge_after_quantile = {}};
  const size_t asks = 1 + dice_.Below(100);
  for (size_t i = 0; i < asks; ++i) {
    const size_t worker = dice_.Below(dead_addresses_->size());
    spec.asks.push_back({.request = std::make_shared<const std::string>(FrameMessage(RequestFor({}))),
                         .workers = {worker},
                         .primary = worker,
                         .response_bytes = std::nullopt,
                         .metadata = nullptr});
  }
  ++open_;
  auto sink = std::make_shared<MergeSink>(
      *dead_fan_out_, [](size_t, const std::string&) { return absl::OkStatus(); },
      [this, deadline](const FanOutResult& result) {
        --open_;
        if (result.answered > 0) network_.Breach("a host that is away has answered");
        if (events_.now() > deadline + kLateness + 2 * callbacks_->longest_backlog()) {
          network_.Breach("calls to hosts that are away ended after their deadline");
        }
      },
      MergeSink::Options{.stop_merging = std::make_shared<std::atomic<bool>>(false)});
  const auto run = FanOutRun::Make(*dead_fan_out_, std::move(spec), sink);
  sink->SetRun(run);
  network_.executor->Post([run] { run->Begin(); });
}

void SimulatedWorld::CancelLater(const std::shared_ptr<FanOutRun>& run) {
  events_.After(microseconds(dice_.Between(0, 20'000)), [this, weak = std::weak_ptr<FanOutRun>(run)] {
    network_.executor->Post([this, weak] {
      const auto under_way = weak.lock();
      if (under_way == nullptr) return;
      network_.faults.Count(Fault::kCancelled);
      under_way->Cancel(absl::CancelledError("by the simulation"));
    });
  });
}

// Checks that the next message of a worker is right, whichever replica sent it.
absl::Status SimulatedWorld::OnMerge(Asked& asked, size_t worker, const std::string& answer) {
  network_.Note(worker);
  network_.Note(answer.size());
  if (asked.done) network_.Breach("a message was merged after the end");
  if (!asked.asked[worker]) network_.Breach(absl::StrCat("worker ", worker, " was not asked, and answers"));
  if (asked.merged[worker] >= asked.messages) {
    if (!asked.streaming) network_.Breach(absl::StrCat("worker ", worker, " has answered twice"));
    return absl::DataLossError("one message too many");
  }
  const std::string right = AnswerOf(asked.key + asked.merged[worker], asked.bytes[worker]);
  if (answer != right) return absl::DataLossError("not the right answer");
  ++asked.merged[worker];
  return absl::OkStatus();
}

void SimulatedWorld::OnDone(const std::shared_ptr<Asked>& asked, const FanOutResult& result) {
  network_.Note(static_cast<uint64_t>(result.status.code()));
  network_.Note(result.answered);
  if (asked->done) network_.Breach("a fan-out has ended twice");
  asked->done = true;
  --open_;
  answered_ += result.answered;
  const size_t asks = static_cast<size_t>(std::count(asked->asked.begin(), asked->asked.end(), true));
  if (result.asked != asks) network_.Breach(absl::StrCat("asked ", result.asked, " of ", asks));
  if (result.asked != result.answered + result.failures.size() + result.cancelled)
    network_.Breach("the counts do not add up");
  // The fan-out waits for the verdicts on messages that arrived in time, and then for the callback itself.
  if (events_.now() > asked->deadline + kLateness + 2 * callbacks_->longest_backlog()) {
    network_.Breach(absl::StrCat("ended ", absl::FormatDuration(absl::FromChrono(events_.now() - asked->deadline)),
                                 " after its deadline"));
  }
  size_t whole = 0;
  for (size_t worker = 0; worker < asked->merged.size(); ++worker) {
    if (asked->asked[worker] && asked->merged[worker] == asked->messages) ++whole;
  }
  if (whole < result.answered) {
    std::string parts;
    for (size_t worker = 0; worker < asked->merged.size(); ++worker) {
      if (asked->asked[worker]) absl::StrAppend(&parts, " ", worker, ":", asked->merged[worker]);
    }
    network_.Breach(absl::StrCat(result.answered, " have answered; ", whole, " were merged whole, of ", asked->messages,
                                 asked->streaming ? " messages of streams" : " message", " each:", parts));
  }
  if (!result.status.ok()) return;
  if (asked->quorum.has_value()
          ? result.answered < std::min(*asked->quorum, asks - std::min(asks, asked->fail_limit)) &&
                result.answered < *asked->quorum
          : result.answered + asked->fail_limit < asks) {
    network_.Breach(
        absl::StrCat("ended OK with ", result.answered, " of ", asks, " answers, fail limit ", asked->fail_limit));
  }
}

}  // namespace sluice::testing
