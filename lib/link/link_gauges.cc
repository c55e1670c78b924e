#include "lib/link/link_gauges.h"

#include <limits>

#include "sluice/plan.h"

#include "lib/model/collapse.h"

namespace sluice {
namespace {

// The budget in force as the buffer of the model. Paced grants leave no time idle, so a large buffer represents them.
LinkProfile WithBudget(const ScheduleOptions& options, int64_t budget_bytes) {
  constexpr int64_t kLarge = int64_t{1} << 40;
  LinkProfile profile = options.profile;
  profile.buffer_packets = 0;
  profile.buffer_bytes = options.paced ? kLarge : budget_bytes;
  return profile;
}

// In bytes per second, by the model of the policy. NaN if that model cannot say.
double PredictGoodput(const ScheduleOptions& options, int64_t budget_bytes, const SlotPlan& plan,
                      int64_t response_bytes, int64_t calls) {
  constexpr double kBitsPerByte = 8;
  switch (options.policy) {
    case SchedulePolicy::kUnscheduled:
      return PredictUnscheduledGoodputBps(options.profile, response_bytes, calls)
                 .value_or(std::numeric_limits<double>::quiet_NaN()) /
             kBitsPerByte;
    case SchedulePolicy::kBatches:
      return plan.goodput_bps / kBitsPerByte;
    case SchedulePolicy::kRolling:
      return PredictClosedLoopGoodputBps(WithBudget(options, budget_bytes), response_bytes, calls) / kBitsPerByte;
    case SchedulePolicy::kGrants:
      return PredictGrantsGoodputBps(WithBudget(options, budget_bytes), response_bytes, calls) / kBitsPerByte;
  }
  return 0;
}

}  // namespace

LinkGauges GaugesOf(LinkLoop& loop) {
  const ScheduleState state = loop.schedule().State();
  const ScheduleOptions& options = loop.schedule().options();
  LinkGauges gauges{.queued_calls = state.waiting_calls,
                    .queued_blocks = state.blocks,
                    .late_blocks = state.late_blocks,
                    .in_flight_bytes = state.in_flight_bytes,
                    .in_flight_calls = state.in_flight_calls,
                    .ungranted_calls = state.ungranted_calls,
                    .ready_bytes = state.ready_bytes,
                    .budget_bytes = state.budget_bytes,
                    .link_capacity_bytes_per_second = options.profile.capacity_bytes_per_second,
                    .profile_rtt = options.profile.propagation_rtt,
                    .policy = options.policy,
                    .observation = loop.schedule().Observation()};
  for (size_t i = 0; i < options.classes.size(); ++i) {
    const TrafficClassState traffic_class = loop.schedule().ClassState(i);
    gauges.classes.push_back({.name = options.classes[i].name,
                              .queued_calls = traffic_class.waiting_calls,
                              .received_bytes = traffic_class.received_bytes});
  }
  gauges.stream_waiting_calls = static_cast<int64_t>(loop.workers().CountWaitingForStream());
  gauges.callback_bytes = loop.callback_memory().waiting_bytes();
  const WorkerTable::Reach reach = loop.worker_table().CountReached();
  gauges.workers_wanted = reach.wanted;
  gauges.workers_connected = reach.connected;
  const auto [calls, response_bytes] = loop.schedule_run().last_block();
  if (calls == 0) return gauges;
  const SlotPlan plan = PlanSlotsAtLeastOne(options.profile, response_bytes, calls);
  gauges.plan_batch_workers = plan.batch_workers;
  gauges.plan_wnd_max_packets = plan.wnd_max_packets;
  gauges.plan_slot = plan.slot;
  gauges.plan_goodput_bytes_per_second = PredictGoodput(options, state.budget_bytes, plan, response_bytes, calls);
  return gauges;
}

}  // namespace sluice
