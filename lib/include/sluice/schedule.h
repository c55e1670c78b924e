#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/link_profile.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice {

// Decides when each worker may send. Flags and configs use the names below.
//   unscheduled  Everything is sent at once, regardless of the budget: the baseline, and the right choice for ample
//                buffers.
//   batches      The slots of the source paper: n workers are asked at T~ * i, and a block begins when the previous
//                block has ended.
//   rolling      The next request leaves as soon as its response fits the budget.
//   grants       Requests leave early, so that workers think at the same time. A response that is ready waits at its
//                worker until the budget has room for it; a large one is granted in parts.
enum class SchedulePolicy { kUnscheduled, kBatches, kRolling, kGrants };

std::string_view SchedulePolicyName(SchedulePolicy policy);
absl::StatusOr<SchedulePolicy> ParseSchedulePolicy(std::string_view name);

// A class of traffic. While several classes have more to send than the link can take, the granted bytes are shared by
// weight. A class without traffic leaves its part to the others.
struct TrafficClass {
  static constexpr size_t kMaxClasses = 16;  // maximum for one link
  static constexpr double kMinWeight = 0.001;
  static constexpr double kMaxWeight = 1000;
  static constexpr size_t kMaxNameBytes = 32;

  std::string name;   // 1 to kMaxNameBytes of a-z, A-Z, 0-9, "_", "-" and "."; different from other classes
  double weight = 1;  // kMinWeight to kMaxWeight
  // Maximum number of its calls that wait, at least 1. ScheduleOptions::queue_limit bounds the calls of all classes.
  int64_t queue_limit = std::numeric_limits<int64_t>::max();
};

// Returns the index of the class with this name; an empty name is the first class. Returns InvalidArgument that names
// the known classes if there is no such class.
absl::StatusOr<size_t> TrafficClassIndex(const std::vector<TrafficClass>& classes, std::string_view name);

// The options of a schedule, with their defaults.
struct ScheduleOptions {
  LinkProfile profile;
  SchedulePolicy policy = SchedulePolicy::kGrants;
  std::optional<int64_t> budget_bytes;  // at least 1; default: the buffer of the profile
  int64_t queue_limit = 65536;          // maximum number of calls that wait; at least 1
  // Maximum bytes of the requests of a FanOut or a BlockReader that wait, at least 1. A request counts for each worker
  // that it is for. A Link refuses calls beyond it with RESOURCE_EXHAUSTED, and leaves free bytes to the calls of other
  // workers as with queue_limit. Default: no bound.
  int64_t queue_bytes = std::numeric_limits<int64_t>::max();
  // Bound for the bytes of responses that are ready at workers and wait for a grant; at least 1, for grants. Requests
  // stop at a quarter of it, and those of small blocks at half to 7/8. Each class may always have its part by weight.
  // If sizes are unknown when requests leave, their responses may exceed it.
  int64_t ready_bytes = 64 << 20;
  // Serves the shortest block first, and keeps a quarter of the link for the oldest. Sizes count once they are
  // announced. Otherwise blocks are served first come, first served. For grants and rolling.
  bool shortest_first = true;
  // If the path holds more than two thirds of the budget (C·R), more bytes than the budget may be on the way: C·R in
  // addition, at most ten budgets. They are granted at 0.97 C, so they cross the port one after the other. Only for
  // workers that are about equally far. For grants and rolling.
  bool paced = false;
  // A Link ends a call that was not sent within this time. The status is RESOURCE_EXHAUSTED, or UNAVAILABLE if the call
  // waited for its worker. Above 0; default: none.
  absl::Duration queue_timeout = absl::InfiniteDuration();
  // Each block belongs to one class, and the order above holds in each class. A block that names no class is in the
  // first. Without classes all blocks are in one class. For grants and rolling, at most TrafficClass::kMaxClasses.
  std::vector<TrafficClass> classes;
  // A call stalls if none of its granted bytes has come for this time, plus a round trip and the time in which the
  // budget drains. Above 0.
  absl::Duration stall_timeout = absl::Milliseconds(300);
  // Bytes of framing in a part of a response, so that the part fills whole packets; at least 0. An HTTP/2 frame header
  // is 9 bytes (RFC 9113, section 4.1). TLS adds 22 bytes for each record, which makes 31: a Link raises it to 31
  // once one of its workers uses TLS.
  int64_t record_overhead_bytes = 9;

  absl::Status Validate() const;  // returns InvalidArgument that names the field and the bound
  // The number of classes of the schedule: 1 without `classes`.
  size_t class_count() const { return classes.empty() ? 1 : classes.size(); }
};

// The state of the schedule at one moment. submitted = waiting + ungranted + in_flight + ended.
struct ScheduleState {
  int64_t budget_bytes = 0;     // the largest int64_t for unscheduled
  int64_t plan_bytes = 0;       // a grant costs at most a third of this; equal to the budget unless a lease differs
  int64_t in_flight_bytes = 0;  // charged, in units of the budget, with aborted calls that still drain
  int64_t slow_bytes =
      0;  // part of in_flight_bytes, of workers with a share below a part; a third of the budget counts
  int64_t in_flight_calls = 0;   // sent, and part of the response was granted, or there is nothing to grant
  int64_t ungranted_calls = 0;   // grants: sent without a grant, whether ready or not
  int64_t straggling_calls = 0;  // grants: sent for eight drain times, and not ready
  int64_t ready_bytes = 0;       // bytes of responses that are ready at workers, not granted, and not given up
  int64_t waiting_calls = 0;     // including parked and held calls
  int64_t parked_calls = 0;
  int64_t held_calls = 0;  // wait until their worker has less than its share outstanding
  int64_t blocks = 0;      // blocks that have not ended
  int64_t submitted_calls = 0;
  int64_t ended_calls = 0;
  int64_t late_blocks = 0;  // since the start: could not make their deadline any more, and gave way to others
  // Since the start: the time in which a request or a response waited for the budget, and the bytes that came in this
  // time, in units of the budget. Calls of a full worker do not wait for the budget.
  std::chrono::nanoseconds backlogged_time{0};
  int64_t backlogged_bytes = 0;
};

// One class of traffic at one moment.
struct TrafficClassState {
  int64_t waiting_calls = 0;   // including parked and held calls
  int64_t ready_bytes = 0;     // as in ScheduleState
  int64_t received_bytes = 0;  // response bytes since the start, in units of the budget
};

// One change of an adaptive budget.
struct BudgetChange {
  int64_t before_bytes = 0;
  int64_t after_bytes = 0;
  int64_t ceiling_bytes = 0;  // the budget at the last loss; 0 if no loss is remembered
  std::string_view decision;  // why it has changed, as metrics and logs name it: grow, probe, back_off or give_back
  std::string_view reason;    // in words
};

// A fact of the link profile that the link contradicts.
struct ProfileMismatch {
  std::string_view fact;  // "capacity", in bytes per second, or "rtt", in seconds
  double told = 0;
  double measured = 0;
};

}  // namespace sluice
