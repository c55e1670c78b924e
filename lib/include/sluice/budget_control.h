#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

// How large the budget of a link should be where nobody knows its buffer, or others take some of it. Sense, decide,
// apply: LinkMonitor observes the link, Decide is a pure function of plain values, and Link::SetBudget applies what it
// says. docs/losses.md has the reasons and what was rejected.
namespace sluice {

// All in bytes, at least 1, floor <= start <= limit.
struct BudgetBounds {
  int64_t floor_bytes = 0;
  int64_t start_bytes = 0;
  // Up to here the budget grows while nothing is lost: somebody has said that the buffer is so large. Above, it grows
  // only while that makes the link busier. Floor to limit.
  int64_t reference_bytes = 0;
  int64_t limit_bytes = 0;
  double capacity_bytes_per_second = 0;  // of frames; above 0

  bool fixed() const { return floor_bytes == limit_bytes; }
  absl::Status Validate() const;  // InvalidArgument that names the field, the value and the bound

  friend bool operator==(const BudgetBounds&, const BudgetBounds&) = default;
};

// What was seen of the link since the observation before.
struct BudgetObservation {
  std::chrono::steady_clock::time_point now;
  int64_t received_frame_bytes = 0;  // that came over the link, headers included
  int64_t answers = 0;               // that ended
  int64_t silent_losses = 0;         // answers that wait for a retransmission timeout
  int64_t out_of_order_losses = 0;   // answers of which packets were out of order: lost, or overtaken
  bool backlogged = false;           // calls wait for the budget; otherwise a larger one would change nothing
};

enum class BudgetDecision {
  kHold,
  kGrow,      // nothing was ever lost: a larger one may make the link busier
  kProbe,     // something was lost long enough ago
  kBackOff,   // something was lost
  kGiveBack,  // the larger one made the link no busier
};
std::string_view BudgetDecisionName(BudgetDecision decision);

// Where the budget is and what is remembered. A plain value; Decide makes the next one from it.
struct BudgetState {
  using TimePoint = std::chrono::steady_clock::time_point;

  int64_t budget_bytes = 0;
  int64_t ceiling_bytes = 0;  // the budget at which something was lost last; 0: none is remembered
  TimePoint ceiling_since;
  int64_t before_growth_bytes = 0;              // a larger budget is on trial; this is the one before. 0: none is
  double before_growth_rate = 0;                // frame bytes per second that came then, at best
  TimePoint settle_until;                       // losses until then are those that were answered already
  TimePoint next_growth;                        // not before
  std::chrono::nanoseconds growth_interval{0};  // from one trial to the next

  // Since the budget changed last, for a share.
  int64_t answers = 0;
  int64_t out_of_order_losses = 0;

  // Of the part of the link's time in which calls waited, at this budget.
  double best_rate = 0;  // frame bytes per second
  int64_t measurements = 0;
  TimePoint last_observation;
  bool backlogged = false;  // then
  std::chrono::nanoseconds measured_time{0};
  int64_t measured_bytes = 0;
};

BudgetState StartBudget(const BudgetBounds& bounds, std::chrono::steady_clock::time_point now);

struct BudgetStep {
  BudgetState state;
  BudgetDecision decision = BudgetDecision::kHold;
  std::string_view reason;  // in words, for a log; empty for kHold
};
BudgetStep Decide(const BudgetBounds& bounds, const BudgetState& state, const BudgetObservation& seen);

}  // namespace sluice
