#include "research/ns3/incast.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <deque>
#include <set>
#include <utility>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "lib/fan_out/fan_out_run.h"
#include "lib/fan_out/fan_out_state.h"
#include "lib/grpc_wire/request.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_monitor.h"
#include "prometheus/registry.h"
#include "research/ns3/ns3_clock.h"
#include "research/ns3/ns3_worker.h"
#include "tests/simulation/wire_oracle.h"
#include "tests/simulation/worker_session.h"

namespace sluice::testing {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr uint16_t kFirstPort = 7000;
constexpr absl::Duration kConnectTime = absl::Seconds(60);

ScheduleOptions ScheduleOf(const IncastOptions& options) {
  ScheduleOptions schedule;
  LinkProfile& profile = schedule.profile;
  const Network::Options& network = options.network;
  profile.capacity_bytes_per_second = network.bits_per_second / 8;
  profile.buffer_bytes = network.buffer_bytes;
  profile.buffer_packets = network.buffer_packets;
  profile.propagation_rtt = network.rtt;
  // Frames of ns-3's point-to-point links have two bytes in addition to the IP packet.
  profile.packet_payload_bytes = network.tcp.SegmentBytes();
  profile.frame_bytes = network.tcp.mtu_bytes + 2;
  profile.ack_frame_bytes = network.tcp.mtu_bytes - network.tcp.SegmentBytes() + 2;
  if (options.link_thread.timer_step.count() > 0) {
    profile.timer_granularity = absl::FromChrono(options.link_thread.timer_step);
  }
  profile.timer_jitter = options.timer_jitter;
  schedule.policy = options.policy;
  if (options.budget_bytes > 0) schedule.budget_bytes = options.budget_bytes;
  schedule.queue_limit = 1 << 24;
  return schedule;
}

// Returns the bounds that Link uses with a known buffer and no other settings.
BudgetBounds BoundsOf(const IncastOptions& options) {
  constexpr int64_t kFloorFrames = 8;
  const LinkProfile profile = ScheduleOf(options).profile;
  const int64_t buffer = BufferBudgetBytes(profile);
  if (options.budget_bytes > 0) {
    return {.floor_bytes = options.budget_bytes,
            .start_bytes = options.budget_bytes,
            .reference_bytes = options.budget_bytes,
            .limit_bytes = options.budget_bytes,
            .capacity_bytes_per_second = profile.capacity_bytes_per_second};
  }
  return {.floor_bytes = std::min(buffer, kFloorFrames * profile.frame_bytes),
          .start_bytes = buffer,
          .reference_bytes = buffer,
          .limit_bytes = buffer,
          .capacity_bytes_per_second = profile.capacity_bytes_per_second};
}

Network::Options NetworkOf(const IncastOptions& options) {
  Network::Options network = options.network;
  network.hosts = (options.hosts > 0 ? options.hosts : options.workers) + (options.victim.has_value() ? 1 : 0);
  network.aggregator_connections = options.workers;
  network.seed = options.seed;
  network.buffer_bytes =
      static_cast<int64_t>(static_cast<double>(network.buffer_bytes) * (1 - options.buffer_taken_share));
  return network;
}

}  // namespace

// The aggregator of a run, and its workers. One for each run. Not thread-safe.
class IncastRun {
 public:
  IncastRun(const IncastOptions& options, std::unique_ptr<Network> network)
      : options_(options),
        dice_(options.seed),
        load_dice_(options.seed),
        victim_dice_(options.seed),
        network_(std::move(network)),
        oracle_(options.watch_wire
                    ? std::make_unique<WireOracle>(
                          ScheduleOf(options), LinkSchedule(ScheduleOf(options)).State().budget_bytes, options.workers)
                    : nullptr),
        executor_(*network_, wires_, dice_, oracle_.get(), options.link_thread),
        loop_(executor_, ScheduleOf(options), metrics_),
        fan_out_(loop_, callbacks_, nullptr),
        monitor_(
            loop_, BoundsOf(options), options.policy != SchedulePolicy::kUnscheduled,
            [this](const BudgetChange&) { ++budget_changes_; }, nullptr) {
    if (oracle_ != nullptr) {
      oracle_->SetLoadOf([this](size_t worker) { return loop_.schedule().Load(static_cast<uint32_t>(worker) + 1); });
    }
    auto addresses = std::make_shared<std::vector<std::string>>();
    const size_t hosts = options.hosts > 0 ? options.hosts : options.workers;
    for (size_t i = 0; i < options.workers; ++i) {
      const auto port = static_cast<uint16_t>(kFirstPort + i / hosts);
      workers_.push_back(
          std::make_unique<Ns3Worker>(*network_, network_->host(i % hosts), port, wires_, dice_,
                                      Ns3Worker::Options{.think = *options.think, .jitter = options.jitter}));
      addresses->push_back(absl::StrCat("worker", i, ":", port));
      executor_.AddWorker(addresses->back(), workers_.back()->address());
    }
    addresses_ = addresses;
    if (options.victim.has_value()) {
      victim_ = std::make_unique<VictimFlow>(*network_, network_->host(hosts), victim_dice_, *options.victim);
    }
  }

  absl::StatusOr<IncastResult> Run() {
    executor_.Post([this] {
      fan_out_.SetWorkers(addresses_);
      workers_set_ = fan_out_.SetOf(addresses_);
      fan_out_.Connect(kConnectTime, [this](const std::vector<size_t>& unconnected) {
        unconnected_ = unconnected.size();
        if (unconnected_ > 0) return ns3::Simulator::Stop();
        Begin();
      });
    });
    Ns3After(absl::ToChronoNanoseconds(options_.longest), [] { ns3::Simulator::Stop(); });
    CheckRunTime();
    ns3::Simulator::Run();
    if (unconnected_ > 0) {
      CloseDown();
      return absl::UnavailableError(
          absl::StrCat(unconnected_, " of ", options_.workers, " workers could not be connected to"));
    }
    IncastResult result = Result();
    CloseDown();
    if (oracle_ != nullptr) result.breaches = oracle_->TakeBreaches();
    result.events = ns3::Simulator::GetEventCount();
    result.run_seconds = RunSeconds();
    return result;
  }

 private:
  struct Query {
    size_t number = 0;
    TimePoint arrived;
    size_t open_runs = 0;
  };
  // The events of one fan-out of Sluice: a whole query, or one call of it if there is a static cap.
  class Sink final : public FanOutRun::Sink {
   public:
    Sink(IncastRun& owner, std::shared_ptr<Query> query) : owner_(owner), query_(std::move(query)) {}
    void SetRun(const std::shared_ptr<FanOutRun>& run) { run_ = run; }
    void Accept(size_t attempt, std::vector<WireMessage> messages) override {
      const auto run = run_.lock();
      for (const WireMessage& message : messages) {
        owner_.received_bytes_ += static_cast<int64_t>(message.bytes.size());
        run->Accepted(attempt, absl::OkStatus(), message.bytes.size());
      }
    }
    void OnEnd(FanOutRun& run) override { owner_.OnRunEnd(query_, run); }

   private:
    IncastRun& owner_;
    const std::shared_ptr<Query> query_;
    std::weak_ptr<FanOutRun> run_;
  };

  double RunSeconds() const { return static_cast<double>(std::clock() - started_) / CLOCKS_PER_SEC; }

  void CheckRunTime() {
    if (RunSeconds() > absl::ToDoubleSeconds(options_.longest_run)) {
      return ns3::Simulator::Stop();
    }
    Ns3After(std::chrono::milliseconds(1), [this] { CheckRunTime(); });
  }

  void Begin() {
    if (options_.load > 0) return Arrive();
    for (size_t i = 0; i < options_.concurrency; ++i) StartQuery();
  }

  // Starts queries at Poisson arrivals, whether or not earlier queries have ended.
  void Arrive() {
    // Start some more queries than count, so that the last counted ones also run under load. The number is limited,
    // because with more load than the network carries they would never end.
    if (over_ || started_queries_ == options_.warm_up + options_.fan_outs + options_.fan_outs / 5) return;
    if (started_queries_ == options_.warm_up) BeginToCount();
    StartQuery();
    const LinkProfile& profile = loop_.schedule().options().profile;
    const double wire_bytes = static_cast<double>(options_.workers) *
                              static_cast<double>(WireBytes(profile, std::llround(options_.sizes->mean())));
    const double mean_pause = wire_bytes / (options_.load * profile.capacity_bytes_per_second);
    const double pause = -std::log1p(-load_dice_.Fraction()) * mean_pause;
    Ns3After(std::chrono::nanoseconds(std::llround(pause * 1e9)), [this] { Arrive(); });
  }

  void BeginToCount() {
    counting_ = true;
    count_from_ = Ns3Now();
    received_bytes_ = 0;
    turns_before_ = executor_.turns();
    busy_before_ = executor_.busy_time();
    network_->ResetCounts();
    if (victim_ != nullptr) victim_->Start();
  }

  void StartQuery() {
    if (over_) return;
    auto query = std::make_shared<Query>();
    query->number = started_queries_++;
    query->arrived = Ns3Now();
    open_.insert(query);
    std::vector<FanOutRun::Ask> asks;
    for (size_t worker = 0; worker < options_.workers; ++worker) {
      const auto bytes = static_cast<size_t>(std::max(1.0, options_.sizes->Draw(load_dice_)));
      FanOutRun::Ask ask{.request = std::make_shared<const std::string>(FrameMessage(RequestFor({0, bytes, 1}))),
                         .workers = {worker},
                         .primary = worker};
      if (options_.announced_share > 0) {
        ask.response_bytes = std::llround(static_cast<double>(bytes) * options_.announced_share);
      }
      asks.push_back(std::move(ask));
    }
    if (options_.static_cap == 0) {
      query->open_runs = 1;
      return StartRun(query, std::move(asks));
    }
    query->open_runs = asks.size();
    for (FanOutRun::Ask& ask : asks) waiting_.emplace_back(query, std::move(ask));
    FillCap();
  }

  void FillCap() {
    while (!over_ && calls_out_ < options_.static_cap && !waiting_.empty()) {
      ++calls_out_;
      auto [query, ask] = std::move(waiting_.front());
      waiting_.pop_front();
      std::vector<FanOutRun::Ask> asks;
      asks.push_back(std::move(ask));
      StartRun(query, std::move(asks));
    }
  }

  void StartRun(const std::shared_ptr<Query>& query, std::vector<FanOutRun::Ask> asks) {
    const auto sink = std::make_shared<Sink>(*this, query);
    const auto run = FanOutRun::Make(fan_out_,
                                     {.path = "/simulated.Answers/Get",
                                      .workers = workers_set_,
                                      .asks = std::move(asks),
                                      .max_message_bytes = 1 << 30},
                                     sink);
    sink->SetRun(run);
    executor_.Post([run] { run->Begin(); });
  }

  void OnRunEnd(const std::shared_ptr<Query>& query, const FanOutRun& run) {
    if (!over_) failed_calls_ += run.logic().result().failures.size();
    if (options_.static_cap > 0) {
      --calls_out_;
      // Post it, so that it does not run within the events of the run.
      executor_.Post([this] { FillCap(); });
    }
    if (--query->open_runs > 0) return;
    open_.erase(query);
    if (over_) return;
    const bool open_loop = options_.load > 0;
    if (!open_loop) executor_.Post([this] { StartQuery(); });
    if (counting_ && (!open_loop || Counts(*query))) times_.push_back(Seconds(Ns3Now() - query->arrived).count());
    if (!open_loop && ++ended_queries_ == options_.warm_up) BeginToCount();
    if (counting_ && times_.size() == options_.fan_outs) ns3::Simulator::Stop();
  }

  bool Counts(const Query& query) const {
    return query.number >= options_.warm_up && query.number < options_.warm_up + options_.fan_outs;
  }

  IncastResult Result() {
    const TimePoint now = Ns3Now();
    IncastResult result;
    result.fan_outs = times_.size();
    result.fan_out_seconds = times_;
    for (const auto& query : open_) {
      if (!counting_ || (options_.load > 0 && !Counts(*query))) continue;
      // In a closed loop, queries that the end of a complete run cuts off are not late.
      if (options_.load == 0 && times_.size() == options_.fan_outs) continue;
      ++result.unfinished;
      result.fan_out_seconds.push_back(Seconds(now - query->arrived).count());
    }
    result.failed_calls = failed_calls_;
    if (!counting_) return result;
    result.seconds = Seconds(now - count_from_).count();
    result.goodput_bps = 8 * static_cast<double>(received_bytes_) / result.seconds;
    result.bottleneck = network_->bottleneck().counts();
    result.link_busy_share =
        8 * static_cast<double>(result.bottleneck.sent_bytes) / (result.seconds * network_->options().bits_per_second);
    result.other_drops = network_->OtherDrops();
    result.retransmission_timeouts = network_->tcp_counts().retransmission_timeouts;
    result.budget_bytes = loop_.schedule().State().budget_bytes;
    result.budget_changes = budget_changes_;
    result.turns = executor_.turns() - turns_before_;
    result.link_thread_busy_share = Seconds(executor_.busy_time() - busy_before_).count() / result.seconds;
    if (victim_ != nullptr) result.victim_seconds = victim_->Times();
    return result;
  }

  // Ends all calls, so that all objects can be destroyed.
  void CloseDown() {
    over_ = true;
    waiting_.clear();
    if (victim_ != nullptr) victim_->Stop();
    bool idle = false;
    executor_.Post([this, &idle] {
      fan_out_.Close(absl::CancelledError("the simulation is over"), [&idle] {
        idle = true;
        ns3::Simulator::Stop();
      });
    });
    while (!idle) ns3::Simulator::Run();
  }

  const IncastOptions options_;
  const std::clock_t started_ = std::clock();
  // With separate sources, the load of a seed does not depend on the schedule.
  Dice dice_;
  Dice load_dice_;
  Dice victim_dice_;
  std::unique_ptr<Network> network_;
  TcpWires wires_;
  std::vector<std::unique_ptr<Ns3Worker>> workers_;
  std::unique_ptr<VictimFlow> victim_;
  std::unique_ptr<WireOracle> oracle_;
  Ns3Executor executor_;
  InlineCallbacks callbacks_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  LinkMetrics metrics_{*registry_};
  LinkLoop loop_;
  FanOutState fan_out_;
  int64_t budget_changes_ = 0;
  LinkMonitor monitor_;
  FanOutState::Addresses addresses_;
  std::shared_ptr<const WorkerSet> workers_set_;

  size_t unconnected_ = 0;
  bool over_ = false;
  bool counting_ = false;
  TimePoint count_from_;
  int64_t turns_before_ = 0;
  std::chrono::nanoseconds busy_before_{0};
  size_t started_queries_ = 0;
  size_t ended_queries_ = 0;
  size_t failed_calls_ = 0;
  int64_t received_bytes_ = 0;
  std::set<std::shared_ptr<Query>> open_;
  std::vector<double> times_;
  size_t calls_out_ = 0;  // only with a static cap
  std::deque<std::pair<std::shared_ptr<Query>, FanOutRun::Ask>> waiting_;
};

absl::StatusOr<IncastResult> RunIncast(const IncastOptions& options) {
  if (options.workers == 0 || options.fan_outs == 0) {
    return absl::InvalidArgumentError("workers and fan_outs must be at least 1");
  }
  if (!options.sizes.has_value() || !options.think.has_value()) {
    return absl::InvalidArgumentError("sizes and think must be given");
  }
  if (options.static_cap > 0 && options.policy != SchedulePolicy::kUnscheduled) {
    return absl::InvalidArgumentError("static_cap is for the policy unscheduled");
  }
  if (absl::Status valid = ScheduleOf(options).Validate(); !valid.ok()) return valid;
  auto network = Network::Create(NetworkOf(options));
  if (!network.ok()) return network.status();
  absl::StatusOr<IncastResult> result;
  {
    IncastRun run(options, *std::move(network));
    result = run.Run();
  }
  ns3::Simulator::Destroy();
  return result;
}

}  // namespace sluice::testing
