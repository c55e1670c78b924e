#include "lib/cli/link_log.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/plan.h"
#include "sluice/worker_fault.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lib/cli/log_limit.h"
#include "lib/cli/logging.h"
#include "lib/cli/units.h"

namespace sluice {
namespace {

void LogBudget(const BudgetChange& change) {
  Log(LogLevel::kInfo, "budget",
      {{"decision", change.decision},
       {"reason", change.reason},
       {"from", change.before_bytes},
       {"to", change.after_bytes},
       {"ceiling", change.ceiling_bytes}});
}

// Bounds the log if a rack dies: only the first changes name their workers.
void LogWorkerFaults(const std::vector<WorkerFaultChange>& changes) {
  constexpr size_t kMost = 10;
  for (const WorkerFaultChange& change : absl::MakeConstSpan(changes).first(std::min(kMost, changes.size()))) {
    if (change.began) {
      Log(LogLevel::kWarning, "worker at fault",
          {{"worker", change.address}, {"fault", WorkerFaultName(change.fault)}});
    } else {
      Log(LogLevel::kInfo, "worker shows no sign of its fault any more",
          {{"worker", change.address},
           {"fault", WorkerFaultName(change.fault)},
           {"lasted", absl::Trunc(absl::FromChrono(change.lasted), absl::Milliseconds(1))}});
    }
  }
  if (changes.size() > kMost) {
    Log(LogLevel::kWarning, "more workers at fault, or without a sign of it any more; workers.json has the worst",
        {{"changes", changes.size() - kMost}});
  }
}

void LogProfileMismatch(const ProfileMismatch& found) {
  constexpr double kBitsPerByte = 8;
  const auto format = [&found](double value) {
    return found.fact == "rtt" ? sluice::FormatDuration(absl::Seconds(value)) : FormatBitRate(value * kBitsPerByte);
  };
  Log(LogLevel::kWarning, "the link contradicts its profile; see docs/runbooks/SluiceLinkProfileWrong.md",
      {{"fact", found.fact}, {"told", format(found.told)}, {"measured", format(found.measured)}});
}

}  // namespace

std::function<void(const InvariantBreach&)> BreachLog() {
  constexpr std::chrono::minutes kInterval{10};
  constexpr size_t kMostPlaces = 100;
  return [limit = std::make_shared<SharedLogLimit>(kInterval, kMostPlaces)](const InvariantBreach& breach) {
    const std::string place = absl::StrCat(std::string(breach.file), ":", breach.line);
    const std::optional<int64_t> left_out = limit->Take(place);
    if (!left_out.has_value()) return;
    Log(LogLevel::kError, "an invariant of Sluice does not hold; please report this line",
        {{"condition", breach.condition},
         {"place", place},
         {"breaches", breach.breaches},
         {"events_left_out", *left_out}});
  };
}

void WarnOfLargeBudget(int64_t budget_bytes, int64_t buffer_bytes) {
  if (budget_bytes <= buffer_bytes) return;
  Log(LogLevel::kWarning, "the budget is larger than the buffer of the port, so responses may overflow it",
      {{"budget_bytes", budget_bytes}, {"buffer_bytes", buffer_bytes}});
}

void WarnOfLargeBudget(const Link::Options& options) {
  const ScheduleOptions& schedule = options.schedule;
  if (!options.budget.buffer_known || schedule.policy == SchedulePolicy::kUnscheduled) return;
  const int64_t least_bytes = std::max(schedule.budget_bytes.value_or(0), options.budget.floor_bytes.value_or(0));
  WarnOfLargeBudget(least_bytes, BufferBudgetBytes(schedule.profile));
}

void LogLease(const absl::Status& state) {
  if (state.ok()) return Log(LogLevel::kInfo, "the budget of the link is leased");
  Log(LogLevel::kWarning, "no lease of the shared link; its safe share is used", {{"reason", state}});
}

absl::StatusOr<std::shared_ptr<Link>> CreateLoggedLink(Link::Options options) {
  options.budget.on_change = LogBudget;
  options.on_worker_faults = LogWorkerFaults;
  options.on_profile_mismatch = LogProfileMismatch;
  options.on_invariant_breach = BreachLog();
  return Link::Create(std::move(options));
}

}  // namespace sluice
