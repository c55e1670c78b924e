#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "sluice/schedule.h"
#include "sluice/time_point.h"

#include "absl/status/status.h"
#include "absl/time/time.h"

// Finds the budget of a link whose buffer is unknown, or which others use as well. LinkMonitor observes the link, calls
// Decide, a pure function of plain values, and applies the result. docs/internals/losses.md has the reasons, and
// docs/internals/decisions.md the rejected alternatives.
namespace sluice {

// All in bytes and at least 1; floor <= start <= limit.
struct BudgetBounds {
  int64_t floor_bytes = 0;
  int64_t start_bytes = 0;
  // The stated size of the buffer, between floor and limit. The budget grows up to here while nothing is lost. Above it
  // the budget grows only while that makes the link busier.
  int64_t reference_bytes = 0;
  int64_t limit_bytes = 0;
  double capacity_bytes_per_second = 0;  // of frames; above 0
  bool buffer_known = false;             // reference_bytes are stated

  bool fixed() const { return floor_bytes == limit_bytes; }
  absl::Status Validate() const;  // returns InvalidArgument that names the field, the value and the bound

  friend bool operator==(const BudgetBounds&, const BudgetBounds&) = default;
};

// The events on the link since the previous observation.
struct BudgetObservation {
  std::chrono::steady_clock::time_point now;
  std::chrono::nanoseconds elapsed{0};  // since the previous observation, without the time in which no call was out
  int64_t answers = 0;                  // calls that ended
  int64_t received_bytes = 0;           // on all connections
  int64_t packets = 0;                  // received, about
  int64_t active_workers = 0;           // workers that had calls or sent bytes
  // Workers with a response that waited for a retransmission timeout, seen within the last half second and after
  // settle_until. A worker counts once.
  int64_t lossy_workers = 0;
  int64_t rto_waits = 0;            // waits as long as a retransmission timeout
  int64_t out_of_order_losses = 0;  // responses with packets out of order: lost, or overtaken
  // The number of such responses after counted_since, of the worker with the most.
  int64_t worst_out_of_order_losses = 0;
  // How long calls waited for the budget, and how many bytes the link received in that time, in units of the budget. In
  // the rest of the time a larger budget would have changed nothing.
  std::chrono::nanoseconds backlogged_time{0};
  int64_t backlogged_bytes = 0;
};

// The events on the link while it had one budget. A plain value.
struct BudgetWindow {
  std::chrono::nanoseconds elapsed{0};
  int64_t received_bytes = 0;
  std::chrono::nanoseconds backlogged_time{0};
  int64_t backlogged_bytes = 0;
  double worker_seconds = 0;  // the time of each active worker, added up
  int64_t rto_waits = 0;
  int64_t packets = 0;
  int64_t out_of_order_losses = 0;

  void Add(const BudgetObservation& seen);
  bool long_enough() const;           // two budgets can be compared after this much time
  double rate() const;                // bytes per second while calls waited, or all the time if they hardly waited
  double received_rate() const;       // bytes per second
  double lost_share() const;          // share of the workers' time that went into retransmission timeouts
  double out_of_order_share() const;  // share of the packets
  // The rate that is left after the timeouts. Budgets are compared by it.
  double worth() const { return rate() * (1 - lost_share()); }
};

// A trial of another budget.
enum class BudgetTrial {
  kNone,
  kLarger,   // a larger budget may make the link busier
  kSmaller,  // a smaller budget may avoid losses
  kAgain,    // no smaller budget has avoided them, and the first one is measured again
};

// The budget and its history. A plain value; Decide computes the next one from it.
struct BudgetState {
  int64_t budget_bytes = 0;
  int64_t ceiling_bytes = 0;  // the budget at the last loss; 0 if no loss is remembered
  TimePoint ceiling_since;
  TimePoint settle_until;                       // the last change, or the end of the echoes of earlier losses
  TimePoint next_growth;                        // the budget does not grow before this time
  std::chrono::nanoseconds growth_interval{0};  // from one trial to the next

  BudgetTrial trial = BudgetTrial::kNone;
  int64_t tried_from_bytes = 0;  // the budget before the trial
  BudgetWindow tried_from;       // measured at that budget
  int64_t best_bytes = 0;        // the best budget of a trial of smaller ones
  BudgetWindow best;

  // Losses that a smaller budget did not avoid are of others in the port. They decide nothing until they become more,
  // the rate changes, or the time is over.
  bool beside_others = false;
  TimePoint beside_since;
  TimePoint beside_until;
  BudgetWindow endured;      // measured with these losses
  int64_t alone_bytes = 0;   // the budget before others came; 0: none came yet
  int64_t beside_bytes = 0;  // the last budget beside others that was right; 0: unknown

  double recent_answers = 0;  // responses in about the last half second
  // A test distinguishes lost packets from overtaken ones. It begins at settle_until, and again whenever it finds that
  // packets were overtaken. The next three fields are its beginning and its counts.
  TimePoint counted_since;
  int64_t packets = 0;
  int64_t out_of_order_losses = 0;

  // Measured at this budget.
  BudgetWindow window;    // since the last measurement
  BudgetWindow measured;  // the best one
  int64_t measurements = 0;
};

// The next step of the adaptive budget, and its reason. Metrics and logs use these names.
enum class BudgetDecision {
  kGrow,      // a larger budget may make the link busier
  kProbe,     // the last loss is long enough ago to try a larger budget
  kBackOff,   // packets were lost, or others have left the port: the budget shrinks
  kGiveBack,  // a trial was of no use, and the budget before it returns
  kHold,      // the budget stays
};
std::string_view BudgetDecisionName(BudgetDecision decision);

BudgetState StartBudget(const BudgetBounds& bounds, std::chrono::steady_clock::time_point now);

struct BudgetStep {
  BudgetState state;
  BudgetDecision decision = BudgetDecision::kHold;
  std::string_view reason;  // in words, for logs; empty for kHold
};
BudgetStep Decide(const BudgetBounds& bounds, const BudgetState& state, const BudgetObservation& seen);

}  // namespace sluice
