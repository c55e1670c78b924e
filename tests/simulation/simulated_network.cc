#include "tests/simulation/simulated_network.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace sluice::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Bytes that cross the port in addition to responses: SETTINGS, WINDOW_UPDATEs and PINGs of servers, each in its own
// packet.
constexpr int64_t kControlBytes = 8192;

// A lap of a worker is long after this time if other calls wait for room. See Outstanding.
constexpr int kLongLapRounds = 10;
constexpr milliseconds kMinLongLap(10);
constexpr size_t kMostSwitches = 8;

}  // namespace

SimulatedNetwork::SimulatedNetwork(uint64_t seed, const Shape& drawn)
    : dice(seed), shape(drawn), switches_(seed * 2 + 1) {
  DrawSchedule();
  budget_bytes = schedule.profile.buffer_bytes;
  delay = microseconds(dice.Between(10, 500));
  schedule.profile.propagation_rtt = absl::FromChrono(2 * delay);
  port = std::make_unique<SimulatedPort>(events, dice, faults, schedule.profile.capacity_bytes_per_second,
                                         schedule.profile.buffer_bytes + kControlBytes, shape.losses ? 500 : 0);
  oracle = std::make_unique<WireOracle>(schedule, budget_bytes, shape.workers);
  const auto drain_time = std::chrono::duration_cast<TimePoint::duration>(
      std::chrono::duration<double>(static_cast<double>(budget_bytes) / schedule.profile.capacity_bytes_per_second));
  const TimePoint::duration round = 2 * delay + drain_time;
  Liveness::Bounds bounds{.stall_time = absl::ToChronoNanoseconds(schedule.stall_timeout) + round,
                          .round = round + milliseconds(1)};
  // These cases are excluded. Lost packets arrive a retransmission timeout later. Large heads overflow the port, since
  // they are charged as small ones. With `rolling`, a response that a slow worker has not begun holds its charge, as
  // with a hung worker.
  const bool granting = schedule.policy == SchedulePolicy::kGrants;
  const bool steady = granting && !shape.losses && !shape.has_large_heads() && !shape.switches && shape.tunnels == 0;
  if (steady && shape.slow_workers > 0) {
    bounds.part_bytes = budget_bytes / 3;
    bounds.long_lap = std::max<TimePoint::duration>(kLongLapRounds * round, kMinLongLap) + milliseconds(1);
  }
  liveness = std::make_unique<Liveness>(events, *port, *oracle, bounds);
  executor = std::make_unique<SimulatedExecutor>(
      events, dice, faults, *oracle,
      SimulatedExecutor::Options{.delay = delay, .connect_fault_one_in = shape.faults ? 20u : 0u});
  metrics = std::make_unique<LinkMetrics>(*registry);
  loop = std::make_unique<LinkLoop>(*executor, schedule, *metrics);
  loop->workers().session_options().first_stream = (1u << 31) - 1 - 2 * (shape.stream_numbers - 1);
  // Exclude bytes of slow workers that do not count.
  port->SetOnOverflow([this](int64_t beyond_bytes) { overflows_ += beyond_bytes > oracle->uncounted_bytes() ? 1 : 0; });
  AddWorkers();
  oracle->SetLoadOf([this](size_t worker) { return loop->schedule().Load(static_cast<uint32_t>(worker) + 1); });
  oracle->SetWaitingRequests([this] { return WaitingRequests(); });
  DrawRates();
  if (!shape.switches) return;
  switches_left_ = 1 + switches_.Below(kMostSwitches);
  SwitchLater();
}

// A switch changes the policy of the schedule, and nothing else.
void SimulatedNetwork::SwitchLater() {
  if (switches_left_-- == 0) return;
  events.After(microseconds(switches_.Between(0, switches_.OneIn(2) ? 5000 : 500'000)), [this] {
    Switch();
    SwitchLater();
  });
}

// Tunnels stay scheduled: the port charges all of their packets.
void SimulatedNetwork::Switch() {
  std::vector<SchedulePolicy> others;
  for (const SchedulePolicy policy :
       {SchedulePolicy::kUnscheduled, SchedulePolicy::kRolling, SchedulePolicy::kGrants}) {
    const bool possible = policy != SchedulePolicy::kUnscheduled || shape.tunnels == 0;
    if (possible && policy != schedule.policy) others.push_back(policy);
  }
  if (loop->schedule().State().in_flight_bytes > 0) {
    faults.Count(Fault::kSwitched);
    if (schedule.policy == SchedulePolicy::kUnscheduled) faults.Count(Fault::kScheduled);
  }
  schedule.policy = others[switches_.Below(others.size())];
  unscheduled_ = unscheduled_ || schedule.policy == SchedulePolicy::kUnscheduled;
  Note(static_cast<uint64_t>(schedule.policy));
  executor->Turn([this] {
    oracle->SetPolicy(schedule.policy);
    if (const absl::Status status = loop->Reconfigure(schedule); !status.ok()) Breach(std::string(status.message()));
  });
}

// Returns -1 while a handshake waits for room: then nothing else leaves. A call is held for its worker if the worker
// has its share outstanding, is slow or has large headers. A call that is held for another worker counts as one that
// waits.
int64_t SimulatedNetwork::WaitingRequests() const {
  const LinkSchedule& scheduled = loop->schedule();
  const ScheduleState state = scheduled.State();
  int64_t waiting = 0;
  for (size_t i = 0; i < schedule.class_count(); ++i) waiting += scheduled.ClassState(i).waiting_calls;
  if (waiting < state.waiting_calls) return -1;
  waiting -= state.parked_calls + state.held_calls;
  for (size_t i = 0; i < workers.size() && state.held_calls > 0 && !shape.large_heads; ++i) {
    const WorkerLoad load = scheduled.Load(static_cast<uint32_t>(i) + 1);
    const bool idle = !load.slow && load.charged_bytes == 0 && load.owing_calls == 0;
    if (idle && !Fails(i)) waiting += load.held_calls;
  }
  return waiting;
}

void SimulatedNetwork::AddWorkers() {
  const bool thinks = (shape.storm || dice.OneIn(2)) && shape.neighbours != Neighbours::kHung;
  const TimePoint::duration longest_think = thinks ? microseconds(dice.Between(0, 20000)) : microseconds(50);
  for (size_t i = 0; i < shape.workers; ++i) {
    workers.push_back(std::make_unique<SimulatedWorker>(
        events, *port, dice, faults, *liveness, i,
        SimulatedWorker::Options{.fault_one_in = shape.faults ? static_cast<uint64_t>(dice.Between(5, 80)) : 0,
                                 .longest_think = longest_think,
                                 .delay = delay,
                                 .max_concurrent_streams = dice.OneIn(4) ? 2u : 100u,
                                 .ends_at_deadline = !dice.OneIn(4),
                                 .hung = i < shape.hung_workers,
                                 .hang_one_in = shape.neighbours == Neighbours::kHung ? 16u : 0u,
                                 .fails = Fails(i),
                                 .slow = IsSlow(i),
                                 .pause_one_in = shape.pauses ? static_cast<uint64_t>(dice.Between(20, 500)) : 0,
                                 .large_heads = shape.large_heads}));
    addresses.push_back(absl::StrCat("10.0.0.", i, ":7000"));
    executor->AddWorker(addresses.back(), *workers.back());
    loop->worker_table().Add(addresses.back());  // this order gives the oracle the schedule's numbers
  }
  for (size_t i = 0; i < shape.dead_addresses; ++i) {
    dead_addresses.push_back(absl::StrCat("10.1.", i / 256, ".", i % 256, ":7000"));
    executor->AddDead(dead_addresses.back());
  }
}

// Draws rates of 0.1 % to 30 % of the port's rate, uniform on a logarithmic scale.
void SimulatedNetwork::DrawRates() {
  const auto draw = [this] {
    return schedule.profile.capacity_bytes_per_second * 0.001 * std::pow(300, dice.Fraction());
  };
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!IsSlow(i)) continue;
    SimulatedUplink& uplink = workers[i]->uplink();
    uplink.SetRate(draw());
    if (!shape.rates_change || dice.OneIn(2)) continue;
    const double rate = dice.OneIn(2) ? 0 : draw();
    events.After(milliseconds(dice.Between(1, 1000)), [this, &uplink, rate] {
      faults.Count(Fault::kRateChanged);
      uplink.SetRate(rate);
    });
  }
}

void SimulatedNetwork::FailAll(TimePoint::duration pause) {
  for (const auto& worker : workers) worker->set_failing(true);
  events.After(pause, [this] {
    for (const auto& worker : workers) worker->set_failing(false);
  });
}

void SimulatedNetwork::DrawSchedule() {
  schedule.policy = dice.OneIn(3) ? SchedulePolicy::kRolling : SchedulePolicy::kGrants;
  schedule.profile.capacity_bytes_per_second = dice.OneIn(2) ? 100e6 / 8 : 1e9 / 8;
  schedule.profile.buffer_bytes = dice.Between(16, 128) * 1024;
  // A storm needs ample room, so that requests leave however many are out.
  if (shape.storm) schedule.profile.buffer_bytes = 4 << 20;
  if (shape.neighbours != Neighbours::kNone) schedule.policy = SchedulePolicy::kGrants;
  if (shape.neighbours == Neighbours::kStreams) {
    // Seconds of such a link are few bytes.
    schedule.profile.capacity_bytes_per_second = 20e6 / 8;
    schedule.classes = {{.name = "queries", .weight = 100}, {.name = "scan", .weight = 1}};
    return;
  }
  if (dice.OneIn(2)) return;
  for (const char* name : {"queries", "scan", "copy"}) {
    schedule.classes.push_back({.name = name, .weight = std::pow(10, 2 * dice.Fraction())});
  }
}

size_t SimulatedNetwork::DrawClass() {
  if (shape.neighbours == Neighbours::kStreams) return 0;
  return dice.Below(schedule.class_count());
}

// Without requests nothing may remain charged: aborted calls have drained, and stragglers are gone.
void SimulatedNetwork::CheckIdle(TimePoint::duration pause) {
  for (const auto& worker : workers) worker->set_faulty(false);
  executor->set_faulty(false);
  const TimePoint end = events.now() + pause;
  while (events.Step(end)) {
  }
  const ScheduleState state = loop->schedule().State();
  // Handshakes with unreachable workers may still be under way.
  if (state.submitted_calls < state.ended_calls) Breach("more calls have ended than there were");
  if (state.ungranted_calls > 0) Breach(absl::StrCat(state.ungranted_calls, " calls are left ungranted"));
  if (state.in_flight_calls > 0) Breach(absl::StrCat(state.in_flight_calls, " calls are left in flight"));
  if (state.in_flight_bytes > 0) Breach(absl::StrCat(state.in_flight_bytes, " bytes are left charged"));
  liveness->CheckAll();
  for (const std::string& breach : liveness->TakeBreaches()) Breach(breach);
  for (const std::string& breach : oracle->TakeBreaches()) Breach(breach);
  const uint64_t stalls = Counter("sluice_timeouts_total", "stall");
  faults.Count(Fault::kStalled, stalls);
  CheckPort(stalls);
  faults.Count(Fault::kRationed, oracle->rationed_resets());
  faults.Count(Fault::kOutOfNumbers, oracle->last_streams());
  faults.Count(Fault::kEarlyBeside, oracle->early_beside());
  faults.Count(Fault::kLateBlock, static_cast<uint64_t>(state.late_blocks));
  faults.Count(Fault::kGaveWay, oracle->gave_way());
  faults.Count(Fault::kBesideLarger, oracle->beside_larger());
  faults.Count(Fault::kBesideMany, oracle->beside_many());
  faults.Count(Fault::kEarlyHung, oracle->early_hung());
}

uint64_t SimulatedNetwork::Counter(const std::string& name, const std::string& label) const {
  uint64_t sum = 0;
  for (const prometheus::MetricFamily& family : registry->Collect()) {
    if (family.name != name) continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      const bool counts = label.empty() || metric.label.front().value == label;
      if (counts) sum += static_cast<uint64_t>(metric.counter.value);
    }
  }
  return sum;
}

void SimulatedNetwork::CheckPort(uint64_t stalls) {
  // Large heads may overflow the port, since they are charged as small ones.
  if (!shape.has_large_heads() && overflows_ > uncharged_packets) {
    Breach(absl::StrCat(overflows_, " packets that the budget is charged for overflowed the port, and ",
                        uncharged_packets, " may; the queue had ", port->most_queued_bytes(), " bytes, the budget is ",
                        budget_bytes));
  }
  // Responses that were given up must arrive while the budget is charged for them, unless a worker or the network is
  // late. Control bytes, which are not charged, may be ahead of them in the port.
  if (shape.pauses || shape.slow_workers > 0 || port->lost_packets() > 0 || unscheduled_) return;
  if (stalls > 0 || oracle->early_late()) return;
  const std::chrono::duration<double> control_time(kControlBytes / schedule.profile.capacity_bytes_per_second);
  if (port->latest() <= control_time) return;
  Breach(absl::StrCat("bytes of a call that was given up came ", port->latest() / microseconds(1),
                      " us after the budget was free of them"));
}

void SimulatedNetwork::Breach(const std::string& what) {
  breaches.push_back(absl::StrCat("at ", events.now().time_since_epoch().count(), " ns: ", what));
}

}  // namespace sluice::testing
