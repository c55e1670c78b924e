#include "research/ns3/incast.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "research/ns3/aggregator.h"
#include "research/ns3/ns3_clock.h"
#include "research/ns3/ns3_worker.h"

namespace sluice::testing {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr uint16_t kFirstPort = 7000;

// Returns the hosts that have workers only.
size_t WorkerHosts(const IncastOptions& options) {
  if (options.peers) return 0;
  return options.hosts > 0 ? options.hosts : options.workers;
}

Network::Options NetworkOf(const IncastOptions& options) {
  Network::Options network = options.network;
  network.aggregators = options.aggregators;
  network.hosts = WorkerHosts(options) + (options.victim.has_value() ? 1 : 0);
  network.aggregator_connections = options.workers;
  network.seed = options.seed;
  network.buffer_bytes =
      static_cast<int64_t>(static_cast<double>(network.buffer_bytes) * (1 - options.buffer_taken_share));
  return network;
}

absl::Status Validate(const IncastOptions& options) {
  if (options.workers == 0 || options.fan_outs == 0 || options.aggregators == 0 || options.burst == 0) {
    return absl::InvalidArgumentError("workers, fan_outs, aggregators and burst must be at least 1");
  }
  if (!options.sizes.has_value() || !options.think.has_value()) {
    return absl::InvalidArgumentError("sizes and think must be given");
  }
  if (options.static_cap > 0 && options.policy != SchedulePolicy::kUnscheduled) {
    return absl::InvalidArgumentError("static_cap is for the policy unscheduled");
  }
  if (options.tunnels && (options.static_cap > 0 || options.watch_wire)) {
    return absl::InvalidArgumentError("static_cap and watch_wire are for calls, not for tunnels");
  }
  if (options.peers && (options.aggregators != options.workers || options.workers < 2)) {
    return absl::InvalidArgumentError(
        absl::StrCat("peers: aggregators and workers must be equal and at least 2, and are ", options.aggregators,
                     " and ", options.workers));
  }
  const size_t most = options.workers - (options.peers ? 1 : 0);
  if (options.asked > most) {
    return absl::InvalidArgumentError(absl::StrCat("asked: ", options.asked, " must be at most ", most));
  }
  return ScheduleOf(options).Validate();
}

}  // namespace

// The aggregators of a run, and their workers. One for each run. Not thread-safe.
class IncastRun final : public Aggregator::Events {
 public:
  IncastRun(const IncastOptions& options, std::unique_ptr<Network> network)
      : options_(options), dice_(options.seed), victim_dice_(options.seed), network_(std::move(network)) {
    std::vector<Aggregator::Target> targets;
    for (size_t i = 0; i < options.workers; ++i) {
      const size_t hosts = std::max<size_t>(1, WorkerHosts(options));
      const auto port = static_cast<uint16_t>(kFirstPort + (options.peers ? 0 : i / hosts));
      const Host& host = options.peers ? network_->aggregator_host(i) : network_->host(i % hosts);
      workers_.push_back(std::make_unique<Ns3Worker>(
          *network_, host, port, wires_, dice_,
          Ns3Worker::Options{.think = *options.think, .jitter = options.jitter, .speaks_bytes = options.tunnels}));
      targets.push_back({absl::StrCat("worker", i, ":", port), workers_.back()->address()});
    }
    for (size_t i = 0; i < options.aggregators; ++i) {
      std::vector<Aggregator::Target> others = targets;
      if (options.peers) others.erase(others.begin() + static_cast<ptrdiff_t>(i));
      aggregators_.push_back(std::make_unique<Aggregator>(options_, *network_, i, others, wires_, dice_, *this));
    }
    if (options.victim.has_value()) {
      victim_ =
          std::make_unique<VictimFlow>(*network_, network_->host(WorkerHosts(options)), victim_dice_, *options.victim);
    }
  }

  absl::StatusOr<IncastResult> Run() {
    size_t connecting = aggregators_.size();
    size_t unconnected = 0;
    for (const auto& aggregator : aggregators_) {
      aggregator->Connect([this, &connecting, &unconnected](size_t failed) {
        unconnected += failed;
        if (--connecting > 0) return;
        if (unconnected > 0) return ns3::Simulator::Stop();
        for (const auto& each : aggregators_) each->Begin();
      });
    }
    Ns3After(absl::ToChronoNanoseconds(options_.longest), [] { ns3::Simulator::Stop(); });
    CheckRunTime();
    ns3::Simulator::Run();
    if (unconnected > 0) {
      CloseDown();
      return absl::UnavailableError(absl::StrCat(unconnected, " of ", options_.workers * options_.aggregators,
                                                 " connections to workers could not be made"));
    }
    IncastResult result = Result();
    CloseDown();
    for (const auto& aggregator : aggregators_) {
      for (std::string& breach : aggregator->TakeBreaches()) result.breaches.push_back(std::move(breach));
    }
    result.events = ns3::Simulator::GetEventCount();
    result.run_seconds = RunSeconds();
    return result;
  }

 private:
  double RunSeconds() const { return static_cast<double>(std::clock() - started_) / CLOCKS_PER_SEC; }

  void CheckRunTime() {
    if (RunSeconds() > absl::ToDoubleSeconds(options_.longest_run)) {
      return ns3::Simulator::Stop();
    }
    Ns3After(std::chrono::milliseconds(1), [this] { CheckRunTime(); });
  }

  void BeginToCount() {
    counting_ = true;
    count_from_ = Ns3Now();
    for (const auto& aggregator : aggregators_) aggregator->BeginToCount();
    network_->ResetCounts();
    if (victim_ != nullptr) victim_->Start();
    if (options_.peers) SampleCredit();
  }

  void SampleCredit() {
    ++samples_;
    for (size_t i = 0; i < aggregators_.size(); ++i) {
      granted_bytes_ += static_cast<double>(aggregators_[i]->schedule().State().in_flight_bytes);
      stranded_bytes_ += network_->uplink(i).GetNBytes();
    }
    Ns3After(absl::ToChronoNanoseconds(options_.network.rtt), [this] { SampleCredit(); });
  }

  // The first aggregator decides when the counts begin and end.
  void OnArrival(size_t aggregator, size_t number) override {
    if (options_.load > 0 && aggregator == 0 && number == options_.warm_up) BeginToCount();
  }

  void OnEnd(const FanOutTime& time) override {
    const bool first = time.aggregator == 0;
    const bool open_loop = options_.load > 0;
    if (counting_ && (!open_loop || aggregators_[0]->Counts(time.number))) {
      times_.push_back(time);
      if (first) ++first_times_;
    }
    if (!open_loop && first && ++ended_ == options_.warm_up) BeginToCount();
    if (counting_ && first_times_ == options_.fan_outs) ns3::Simulator::Stop();
  }

  IncastResult Result() {
    IncastResult result;
    result.fan_outs = times_.size();
    result.times = times_;
    const bool complete = first_times_ == options_.fan_outs;
    for (const auto& aggregator : aggregators_) {
      result.failed_calls += aggregator->failed_calls();
      result.budget_changes += aggregator->budget_changes();
      result.surprises += aggregator->surprises();
      for (const FanOutTime& time : aggregator->Open()) {
        // Fan-outs that the end of a complete run cuts off are not late.
        const bool cut_off = complete && (options_.load == 0 || time.aggregator > 0);
        if (!counting_ || cut_off || (options_.load > 0 && !aggregator->Counts(time.number))) continue;
        ++result.unfinished;
        result.times.push_back(time);
      }
    }
    for (const FanOutTime& time : result.times) result.fan_out_seconds.push_back(time.seconds);
    if (!counting_) return result;
    AddCounts(result);
    return result;
  }

  void AddCounts(IncastResult& result) {
    const auto aggregators = static_cast<double>(aggregators_.size());
    result.seconds = Seconds(Ns3Now() - count_from_).count();
    double received_bytes = 0;
    for (size_t i = 0; i < aggregators_.size(); ++i) {
      received_bytes += static_cast<double>(aggregators_[i]->received_bytes());
      const PortQueue::Counts& port = network_->bottleneck(i).counts();
      result.bottleneck.packets += port.packets;
      result.bottleneck.dropped_packets += port.dropped_packets;
      result.bottleneck.dropped_bytes += port.dropped_bytes;
      result.bottleneck.marked_packets += port.marked_packets;
      result.bottleneck.sent_bytes += port.sent_bytes;
      result.bottleneck.most_bytes = std::max(result.bottleneck.most_bytes, port.most_bytes);
      result.bottleneck.most_packets = std::max(result.bottleneck.most_packets, port.most_packets);
    }
    const Aggregator& first = *aggregators_[0];
    result.goodput_bps = 8 * received_bytes / (result.seconds * aggregators);
    result.first_goodput_bps = 8 * static_cast<double>(first.received_bytes()) / result.seconds;
    result.link_busy_share = 8 * static_cast<double>(result.bottleneck.sent_bytes) /
                             (result.seconds * aggregators * network_->options().bits_per_second);
    result.other_drops = network_->OtherDrops();
    result.retransmission_timeouts = network_->tcp_counts().retransmission_timeouts;
    result.budget_bytes = first.schedule().State().budget_bytes;
    result.turns = first.turns();
    result.link_thread_busy_share = Seconds(first.busy_time()).count() / result.seconds;
    if (samples_ > 0) {
      result.granted_bytes = granted_bytes_ / (samples_ * aggregators);
      result.stranded_bytes = stranded_bytes_ / (samples_ * aggregators);
    }
    if (victim_ != nullptr) result.victim_seconds = victim_->Times();
  }

  // Ends all calls, so that all objects can be destroyed.
  void CloseDown() {
    if (victim_ != nullptr) victim_->Stop();
    size_t closing = aggregators_.size();
    for (const auto& aggregator : aggregators_) aggregator->Stop();
    for (const auto& aggregator : aggregators_) {
      aggregator->Close([&closing] {
        if (--closing == 0) ns3::Simulator::Stop();
      });
    }
    while (closing > 0) ns3::Simulator::Run();
  }

  const IncastOptions options_;
  const std::clock_t started_ = std::clock();
  // With separate sources, the load of a seed does not depend on the schedule.
  Dice dice_;
  Dice victim_dice_;
  std::unique_ptr<Network> network_;
  TcpWires wires_;
  std::vector<std::unique_ptr<Ns3Worker>> workers_;
  std::unique_ptr<VictimFlow> victim_;
  std::vector<std::unique_ptr<Aggregator>> aggregators_;

  bool counting_ = false;
  TimePoint count_from_;
  size_t ended_ = 0;  // fan-outs of the first aggregator
  std::vector<FanOutTime> times_;
  size_t first_times_ = 0;  // the part of times_ that belongs to the first aggregator
  double samples_ = 0;
  double granted_bytes_ = 0;  // sums of the samples of all aggregators
  double stranded_bytes_ = 0;
};

double IdleSeconds(const IncastOptions& options, int64_t bytes) {
  const LinkProfile profile = ScheduleOf(options).profile;
  const int64_t wire = WireBytes(profile, bytes);
  return absl::ToDoubleSeconds(profile.propagation_rtt) +
         static_cast<double>(wire + std::min<int64_t>(wire, profile.frame_bytes)) / profile.capacity_bytes_per_second;
}

absl::StatusOr<IncastResult> RunIncast(const IncastOptions& options) {
  if (absl::Status valid = Validate(options); !valid.ok()) return valid;
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
