#include "research/ns3/aggregator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sluice/plan.h"

#include "lib/grpc_wire/request.h"
#include "research/ns3/ns3_clock.h"
#include "tests/simulation/worker_session.h"

namespace sluice::testing {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr absl::Duration kConnectTime = absl::Seconds(60);

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

// Draws a pause of a Poisson process.
std::chrono::nanoseconds DrawPause(Dice& dice, double mean_seconds) {
  const double pause = -std::log1p(-dice.Fraction()) * mean_seconds;
  return std::chrono::nanoseconds(std::llround(pause * 1e9));
}

}  // namespace

ScheduleOptions ScheduleOf(const IncastOptions& options) {
  ScheduleOptions schedule;
  LinkProfile& profile = schedule.profile;
  const Network::Options& network = options.network;
  profile.capacity_bytes_per_second = network.bits_per_second / 8;
  profile.buffer_bytes = options.told_buffer_bytes > 0 ? options.told_buffer_bytes : network.buffer_bytes;
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
  schedule.shortest_first = options.shortest_first;
  schedule.paced = options.paced;
  if (options.budget_bytes > 0) schedule.budget_bytes = options.budget_bytes;
  schedule.queue_limit = 1 << 24;
  return schedule;
}

// Receives the events of one fan-out of Sluice: a whole query, or one call of it if there is a static cap.
class Aggregator::Sink final : public FanOutRun::Sink {
 public:
  Sink(Aggregator& owner, std::shared_ptr<Query> query) : owner_(owner), query_(std::move(query)) {}
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
  Aggregator& owner_;
  const std::shared_ptr<Query> query_;
  std::weak_ptr<FanOutRun> run_;
};

Aggregator::Aggregator(const IncastOptions& options, Network& network, size_t index, const std::vector<Target>& workers,
                       TcpWires& wires, Dice& dice, Events& events)
    : options_(options),
      index_(index),
      events_(events),
      load_dice_(options.seed + (index << 32)),
      oracle_(options.watch_wire
                  ? std::make_unique<WireOracle>(ScheduleOf(options),
                                                 LinkSchedule(ScheduleOf(options)).State().budget_bytes, workers.size())
                  : nullptr),
      executor_(network, index, wires, dice, oracle_.get(), options.link_thread),
      loop_(executor_, ScheduleOf(options), metrics_),
      fan_out_(loop_, callbacks_, nullptr),
      monitor_(
          loop_, BoundsOf(options), options.policy != SchedulePolicy::kUnscheduled,
          [this](const BudgetChange&) { ++budget_changes_; }, nullptr) {
  if (oracle_ != nullptr) {
    oracle_->SetLoadOf([this](size_t worker) { return loop_.schedule().Load(static_cast<uint32_t>(worker) + 1); });
  }
  auto addresses = std::make_shared<std::vector<std::string>>();
  for (const Target& worker : workers) {
    addresses->push_back(worker.name);
    executor_.AddWorker(worker.name, worker.address);
  }
  addresses_ = addresses;
}

void Aggregator::Connect(std::function<void(size_t unconnected)> on_done) {
  executor_.Post([this, on_done = std::move(on_done)] {
    if (options_.tunnels) return tunnels_.Connect(*addresses_, [on_done] { on_done(0); });
    fan_out_.SetWorkers(addresses_);
    workers_ = fan_out_.SetOf(addresses_);
    fan_out_.Connect(kConnectTime, [on_done](const std::vector<size_t>& unconnected) { on_done(unconnected.size()); });
  });
}

void Aggregator::Begin() {
  if (options_.load > 0) return Arrive();
  for (size_t i = 0; i < options_.concurrency; ++i) {
    if (pauses()) {
      StartQueryLater();
    } else {
      StartQuery();
    }
  }
}

void Aggregator::BeginToCount() {
  received_bytes_ = 0;
  turns_before_ = executor_.turns();
  busy_before_ = executor_.busy_time();
}

void Aggregator::Stop() {
  over_ = true;
  waiting_.clear();
}

void Aggregator::Close(std::function<void()> on_closed) {
  executor_.Post([this, on_closed = std::move(on_closed)] {
    tunnels_.Stop();
    fan_out_.Close(absl::CancelledError("the simulation is over"), on_closed);
  });
}

std::vector<FanOutTime> Aggregator::Open() const {
  std::vector<FanOutTime> times;
  for (const auto& query : open_) times.push_back(TimeOf(*query));
  return times;
}

FanOutTime Aggregator::TimeOf(const Query& query) const {
  return {.aggregator = index_,
          .number = query.number,
          .bytes = query.bytes,
          .seconds = Seconds(Ns3Now() - query.arrived).count()};
}

bool Aggregator::Counts(size_t number) const {
  return number >= options_.warm_up && number < options_.warm_up + options_.fan_outs;
}

int64_t Aggregator::surprises() const {
  int64_t surprises = 0;
  for (const prometheus::MetricFamily& family : registry_->Collect()) {
    if (family.name != "sluice_tunnel_surprises_total") continue;
    for (const prometheus::ClientMetric& metric : family.metric) surprises += std::llround(metric.counter.value);
  }
  return surprises;
}

std::vector<std::string> Aggregator::TakeBreaches() {
  return oracle_ != nullptr ? oracle_->TakeBreaches() : std::vector<std::string>();
}

// Starts queries at Poisson arrivals, whether or not earlier queries have ended.
void Aggregator::Arrive() {
  for (size_t i = 0; i < options_.burst; ++i) {
    // Start some more queries than count, so that the last counted ones also run under load. The number is limited,
    // because with more load than the network carries they would never end.
    if (over_ || started_queries_ >= options_.warm_up + options_.fan_outs + options_.fan_outs / 5) return;
    StartQuery();
  }
  const LinkProfile& profile = loop_.schedule().options().profile;
  const size_t asked = options_.asked > 0 ? options_.asked : addresses_->size();
  const double wire_bytes =
      static_cast<double>(asked) * static_cast<double>(WireBytes(profile, std::llround(options_.sizes->mean())));
  const double mean_pause =
      static_cast<double>(options_.burst) * wire_bytes / (options_.load * profile.capacity_bytes_per_second);
  Ns3After(DrawPause(load_dice_, mean_pause), [this] { Arrive(); });
}

void Aggregator::StartQueryLater() {
  Ns3After(DrawPause(load_dice_, Seconds(options_.neighbour_pause).count()), [this] { StartQuery(); });
}

// Returns all workers in their order, or some of them at random.
std::vector<size_t> Aggregator::DrawWorkers() {
  std::vector<size_t> workers(addresses_->size());
  std::iota(workers.begin(), workers.end(), 0);
  if (options_.asked == 0) return workers;
  for (size_t i = 0; i < options_.asked; ++i) {
    std::swap(workers[i], workers[i + load_dice_.Below(workers.size() - i)]);
  }
  workers.resize(options_.asked);
  return workers;
}

void Aggregator::StartQuery() {
  if (over_) return;
  events_.OnArrival(index_, started_queries_);
  auto query = std::make_shared<Query>();
  query->number = started_queries_++;
  query->arrived = Ns3Now();
  open_.insert(query);
  const std::vector<size_t> workers = DrawWorkers();
  std::vector<FanOutRun::Ask> asks;
  if (options_.tunnels) query->open_parts = workers.size();
  for (const size_t worker : workers) {
    const auto bytes = static_cast<size_t>(std::max(1.0, options_.sizes->Draw(load_dice_)));
    query->bytes += static_cast<int64_t>(bytes);
    if (options_.tunnels) {
      AskTunnel(query, worker, bytes);
      continue;
    }
    FanOutRun::Ask ask{.request = std::make_shared<const std::string>(FrameMessage(RequestFor({0, bytes, 1}))),
                       .workers = {worker},
                       .primary = worker};
    if (options_.announced_share > 0) {
      ask.response_bytes = std::llround(static_cast<double>(bytes) * options_.announced_share);
    }
    asks.push_back(std::move(ask));
  }
  if (options_.tunnels) return;
  if (options_.static_cap == 0) {
    query->open_parts = 1;
    return StartRun(query, std::move(asks));
  }
  query->open_parts = asks.size();
  for (FanOutRun::Ask& ask : asks) waiting_.emplace_back(query, std::move(ask));
  FillCap();
}

void Aggregator::AskTunnel(const std::shared_ptr<Query>& query, size_t worker, size_t bytes) {
  executor_.Post([this, query, worker, bytes] {
    tunnels_.Ask(worker, bytes, [this, query, bytes] {
      received_bytes_ += static_cast<int64_t>(bytes);
      EndPart(query);
    });
  });
}

void Aggregator::FillCap() {
  while (!over_ && calls_out_ < options_.static_cap && !waiting_.empty()) {
    ++calls_out_;
    auto [query, ask] = std::move(waiting_.front());
    waiting_.pop_front();
    std::vector<FanOutRun::Ask> asks;
    asks.push_back(std::move(ask));
    StartRun(query, std::move(asks));
  }
}

void Aggregator::StartRun(const std::shared_ptr<Query>& query, std::vector<FanOutRun::Ask> asks) {
  const auto sink = std::make_shared<Sink>(*this, query);
  const auto run = FanOutRun::Make(
      fan_out_,
      {.path = "/simulated.Answers/Get", .workers = workers_, .asks = std::move(asks), .max_message_bytes = 1 << 30},
      sink);
  sink->SetRun(run);
  executor_.Post([run] { run->Begin(); });
}

void Aggregator::OnRunEnd(const std::shared_ptr<Query>& query, const FanOutRun& run) {
  if (!over_) failed_calls_ += run.logic().result().failures.size();
  if (options_.static_cap > 0) {
    --calls_out_;
    // Post it, so that it does not run within the events of the run.
    executor_.Post([this] { FillCap(); });
  }
  EndPart(query);
}

void Aggregator::EndPart(const std::shared_ptr<Query>& query) {
  if (--query->open_parts > 0) return;
  open_.erase(query);
  if (over_) return;
  if (options_.load == 0) {
    if (pauses()) {
      StartQueryLater();
    } else {
      executor_.Post([this] { StartQuery(); });
    }
  }
  events_.OnEnd(TimeOf(*query));
}

}  // namespace sluice::testing
