#include "tests/simulation/simulated_world.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/request.h"
#include "lib/link/clock.h"

namespace sluice::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Turns of the link's thread are late by 5 ms at most, one behind the other, and timers by 1 ms.
constexpr std::chrono::milliseconds kLateness(50);
// One world in so many is a storm.
constexpr uint64_t kStormOneIn = 32;
constexpr size_t kStormCalls = 5000;
constexpr size_t kStormWorkers = 2;
// What crosses the port beside answers: SETTINGS, WINDOW_UPDATEs and PINGs of servers, each in a packet of its own.
constexpr int64_t kControlBytes = 8192;

}  // namespace

// One fan-out, and what has come of it.
struct SimulatedWorld::Asked {
  bool streaming = false;
  size_t messages = 1;
  uint64_t key = 0;
  std::vector<size_t> bytes;  // by worker; 0: also a size
  std::vector<bool> asked;
  std::vector<size_t> merged;  // by worker
  size_t fail_limit = 0;
  std::optional<size_t> quorum;
  TimePoint started;
  TimePoint deadline;
  bool done = false;
};

SimulatedWorld::SimulatedWorld(uint64_t seed) : dice_(seed), shape_(DrawShape(seed)) {
  schedule_ = DrawSchedule();
  budget_bytes_ = schedule_.profile.buffer_bytes;
  delay_ = microseconds(dice_.Between(10, 500));
  schedule_.profile.propagation_rtt = absl::FromChrono(2 * delay_);
  port_ = std::make_unique<SimulatedPort>(events_, dice_, faults_, schedule_.profile.capacity_bytes_per_second,
                                          schedule_.profile.buffer_bytes + kControlBytes, shape_.losses ? 500 : 0);
  oracle_ = std::make_unique<WireOracle>(schedule_, budget_bytes_, shape_.workers);
  const auto drain_time = std::chrono::duration_cast<TimePoint::duration>(
      std::chrono::duration<double>(static_cast<double>(budget_bytes_) / schedule_.profile.capacity_bytes_per_second));
  const TimePoint::duration round = 2 * delay_ + drain_time;
  liveness_ = std::make_unique<Liveness>(events_, *port_, absl::ToChronoNanoseconds(schedule_.stall_timeout) + round,
                                         round + milliseconds(1));
  executor_ = std::make_unique<SimulatedExecutor>(
      events_, dice_, faults_, *oracle_,
      SimulatedExecutor::Options{.delay = delay_, .connect_fault_one_in = shape_.faults ? 20u : 0u});
  callbacks_ = std::make_unique<SimulatedCallbacks>(events_, dice_, faults_, shape_.slow_reader ? 4 : 50);
  metrics_ = std::make_unique<AggregatorMetrics>(*registry_);
  core_ = std::make_unique<LinkCore>(*executor_, *LinkSchedule::Create(schedule_), *metrics_);
  auto addresses = std::make_shared<std::vector<std::string>>();
  const bool thinks = shape_.storm || dice_.OneIn(2);
  const TimePoint::duration longest_think = thinks ? microseconds(dice_.Between(0, 20000)) : microseconds(50);
  for (size_t i = 0; i < shape_.workers; ++i) {
    workers_.push_back(std::make_unique<SimulatedWorker>(
        events_, *port_, dice_, faults_, *liveness_,
        SimulatedWorker::Options{.fault_one_in = shape_.faults ? static_cast<uint64_t>(dice_.Between(5, 80)) : 0,
                                 .longest_think = longest_think,
                                 .delay = delay_,
                                 .max_concurrent_streams = dice_.OneIn(4) ? 2u : 100u,
                                 .ends_at_deadline = !dice_.OneIn(4),
                                 .hung = i < shape_.hung_workers}));
    addresses->push_back(absl::StrCat("10.0.0.", i, ":7000"));
    executor_->AddWorker(addresses->back(), *workers_.back());
  }
  addresses_ = addresses;
  executor_->Turn([this] {
    fan_out_ = std::make_unique<FanOutCore>(*core_, *callbacks_, nullptr);
    fan_out_->SetWorkers(addresses_);
  });
}

SimulatedWorld::~SimulatedWorld() {
  executor_->Turn([this] { fan_out_.reset(); });
  core_.reset();
}

SimulatedWorld::Shape SimulatedWorld::DrawShape(uint64_t seed) {
  Shape shape;
  // Not by the dice: seeds that follow each other have their share of storms.
  shape.storm = seed % kStormOneIn == 0;
  shape.faults = !shape.storm && !dice_.OneIn(4);
  shape.losses = shape.faults && dice_.OneIn(4);
  if (dice_.OneIn(4)) shape.workers += dice_.Below(17);
  if (dice_.OneIn(4)) shape.hung_workers = 1 + dice_.Below(4);
  if (shape.storm) shape.hung_workers = kStormWorkers;
  shape.slow_reader = dice_.OneIn(4);
  return shape;
}

LinkSchedule::Options SimulatedWorld::DrawSchedule() {
  LinkSchedule::Options schedule;
  schedule.discipline = dice_.OneIn(3) ? Discipline::kRolling : Discipline::kGrants;
  schedule.profile.capacity_bytes_per_second = dice_.OneIn(2) ? 100e6 / 8 : 1e9 / 8;
  schedule.profile.buffer_bytes = dice_.Between(16, 128) * 1024;
  // So that requests leave, whatever is out.
  if (shape_.storm) schedule.profile.buffer_bytes = 4 << 20;
  return schedule;
}

void SimulatedWorld::Run() {
  const bool connect = dice_.OneIn(2);
  if (connect) executor_->Turn([this] { fan_out_->Connect(absl::Seconds(1), [](const std::vector<size_t>&) {}); });
  TimePoint next = events_.now();
  const size_t calls = shape_.storm ? kStormCalls : kLeastCalls;
  while (calls_ < calls) {
    while (events_.Step(next)) {
    }
    StartFanOut();
    const bool pause = !shape_.storm && dice_.OneIn(3);
    const int64_t longest_us = pause ? 100'000 : shape_.storm ? 5000 : 500;
    next = events_.now() + microseconds(dice_.Between(0, longest_us));
  }
  // Every fan-out has a deadline, so all of them end.
  const TimePoint end = events_.now() + std::chrono::seconds(120);
  while (open_ > 0 && events_.Step(end)) {
  }
  if (open_ > 0) Breach(absl::StrCat(open_, " fan-outs have not ended"));
  CheckIdle();
  CountStalls();
  faults_.Count(Fault::kRationed, oracle_->rationed_resets());
}

void SimulatedWorld::StartFanOut() {
  auto asked = std::make_shared<Asked>();
  const size_t workers = workers_.size();
  asked->streaming = dice_.OneIn(4);
  asked->messages = asked->streaming ? dice_.Below(4) : 1;
  asked->key = dice_.Below(1 << 20);
  asked->bytes.resize(workers);
  asked->asked.resize(workers);
  asked->merged.resize(workers);
  asked->started = events_.now();
  const bool long_deadline = shape_.hung_workers > 0 || dice_.OneIn(2);
  const absl::Duration timeout = long_deadline ? absl::Seconds(30) : absl::Milliseconds(dice_.Between(1, 1000));
  asked->deadline = DeadlineAfter(asked->started, timeout);

  const size_t mean = dice_.OneIn(16) ? 100'000 : 12'000;
  auto set = fan_out_->SetOf(addresses_);
  FanOutRun::Spec spec{.path = "/simulated.Answers/Get",
                       .server_streaming = asked->streaming,
                       .workers = set,
                       .asks = {},
                       .metadata = nullptr,
                       .max_message_bytes = 1 << 20,
                       .limits = {},
                       .hedge_after_quantile = {}};
  for (size_t worker = 0; worker < workers; ++worker) {
    // A storm is about few workers, each of which is to be reset for more than there may be resets.
    if (dice_.OneIn(10) || (shape_.storm && worker >= kStormWorkers && !dice_.OneIn(16))) continue;
    asked->asked[worker] = true;
    asked->bytes[worker] = dice_.OneIn(10) ? dice_.Below(3) : dice_.Below(2 * mean);
    std::vector<size_t> replicas;
    for (size_t replica = worker + 1; replica < workers && dice_.OneIn(3); ++replica) replicas.push_back(replica);
    std::optional<int64_t> known;
    const auto total = static_cast<int64_t>(asked->bytes[worker] * asked->messages);
    if (dice_.OneIn(3)) known = total;
    if (dice_.OneIn(20)) known = total / 2;  // said to be known, and wrong
    spec.asks.push_back({.request = std::make_shared<const std::string>(
                             FrameMessage(RequestFor(asked->key, asked->bytes[worker], asked->messages))),
                         .workers = fan_out_->OrderOf(*set, worker, replicas),
                         .primary = worker,
                         .response_bytes = known,
                         .metadata = nullptr});
  }
  const size_t asks = spec.asks.size();
  calls_ += asks;
  asked->fail_limit = shape_.hung_workers > 0 ? asks : dice_.OneIn(2) ? 0 : dice_.Below(workers);
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
      [this, asked](const FanOutResult& result) { OnDone(asked, result); }, false,
      std::make_shared<std::atomic<bool>>(false));
  const auto run = FanOutRun::Make(*fan_out_, std::move(spec), sink);
  sink->SetRun(run);
  executor_->Post([run] { run->Begin(); });
  if (shape_.storm ? !dice_.OneIn(8) : dice_.OneIn(10)) CancelLater(run);
}

void SimulatedWorld::CancelLater(const std::shared_ptr<FanOutRun>& run) {
  events_.After(microseconds(dice_.Between(0, 20'000)), [this, weak = std::weak_ptr<FanOutRun>(run)] {
    executor_->Post([this, weak] {
      const auto under_way = weak.lock();
      if (under_way == nullptr) return;
      faults_.Count(Fault::kCancelled);
      under_way->Cancel(absl::CancelledError("by the simulation"));
    });
  });
}

// The next message of a worker has to be the right one, whichever replica sent it.
absl::Status SimulatedWorld::OnMerge(Asked& asked, size_t worker, const std::string& answer) {
  Note(worker);
  Note(answer.size());
  if (asked.done) Breach("a message was merged after the end");
  if (!asked.asked[worker]) Breach(absl::StrCat("worker ", worker, " was not asked, and answers"));
  if (asked.merged[worker] >= asked.messages) {
    if (!asked.streaming) Breach(absl::StrCat("worker ", worker, " has answered twice"));
    return absl::DataLossError("one message too many");
  }
  const std::string right = AnswerOf(asked.key + asked.merged[worker], asked.bytes[worker]);
  if (answer != right) return absl::DataLossError("not the right answer");
  ++asked.merged[worker];
  return absl::OkStatus();
}

void SimulatedWorld::OnDone(const std::shared_ptr<Asked>& asked, const FanOutResult& result) {
  Note(static_cast<uint64_t>(result.status.code()));
  Note(result.answered);
  if (asked->done) Breach("a fan-out has ended twice");
  asked->done = true;
  --open_;
  answered_ += result.answered;
  const size_t asks = static_cast<size_t>(std::count(asked->asked.begin(), asked->asked.end(), true));
  if (result.asked != asks) Breach(absl::StrCat("asked ", result.asked, " of ", asks));
  if (result.asked != result.answered + result.failures.size() + result.cancelled) Breach("the counts do not add up");
  // The verdicts on what was here in time are waited for, and then the callback itself.
  if (events_.now() > asked->deadline + kLateness + 2 * callbacks_->longest_backlog()) {
    Breach(absl::StrCat("ended ", absl::FormatDuration(absl::FromChrono(events_.now() - asked->deadline)),
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
    Breach(absl::StrCat(result.answered, " have answered; ", whole, " were merged whole, of ", asked->messages,
                        asked->streaming ? " messages of streams" : " message", " each:", parts));
  }
  if (!result.status.ok()) return;
  if (asked->quorum.has_value()
          ? result.answered < std::min(*asked->quorum, asks - std::min(asks, asked->fail_limit)) &&
                result.answered < *asked->quorum
          : result.answered + asked->fail_limit < asks) {
    Breach(absl::StrCat("ended OK with ", result.answered, " of ", asks, " answers, fail limit ", asked->fail_limit));
  }
}

// With nothing asked for, nothing may be held: what was aborted has drained, and stragglers are gone.
void SimulatedWorld::CheckIdle() {
  for (const auto& worker : workers_) worker->set_faulty(false);
  executor_->set_faulty(false);
  // An attempt to connect that nobody answers is given up after 5 s; after a storm, calls wait for their resets.
  const TimePoint end = events_.now() + std::chrono::seconds(shape_.storm ? 100 : 15);
  while (events_.Step(end)) {
  }
  const ScheduleState state = core_->schedule().State();
  // The handshakes of workers that cannot be reached may be under way.
  if (state.submitted_calls < state.ended_calls) Breach("more calls have ended than there were");
  if (state.ungranted_calls > 0) Breach(absl::StrCat(state.ungranted_calls, " calls are left ungranted"));
  if (state.in_flight_calls > 0) Breach(absl::StrCat(state.in_flight_calls, " calls are left in flight"));
  if (state.in_flight_bytes > 0) Breach(absl::StrCat(state.in_flight_bytes, " bytes are left charged"));
  liveness_->CheckAll();
  for (const std::string& breach : liveness_->TakeBreaches()) Breach(breach);
  for (const std::string& breach : oracle_->TakeBreaches()) Breach(breach);
}

void SimulatedWorld::CountStalls() {
  double stalls = 0;
  for (const prometheus::MetricFamily& family : registry_->Collect()) {
    if (family.name != "sluice_timeouts_total") continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      if (metric.label.front().value == "stall") stalls = metric.counter.value;
    }
  }
  faults_.Count(Fault::kStalled, static_cast<uint64_t>(stalls));
  // What was lost otherwise comes a retransmission timeout later, when the call may be over, and its room free.
  if (stalls == 0 && !shape_.losses && port_->overflows() > 0) {
    Breach(absl::StrCat(port_->overflows(), " packets overflowed the port without a stall; the queue had ",
                        port_->most_queued_bytes(), " bytes, the budget is ", budget_bytes_));
  }
}

void SimulatedWorld::Breach(const std::string& what) {
  breaches_.push_back(absl::StrCat("at ", events_.now().time_since_epoch().count(), " ns: ", what));
}

}  // namespace sluice::testing
