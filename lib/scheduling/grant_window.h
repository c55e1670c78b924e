#pragma once

#include <chrono>
#include <cstdint>

#include "sluice/link_schedule.h"

namespace sluice {

// What the headers of one answer take of a port buffer that counts bytes when the answer becomes ready: a packet of
// their own. Measured with gRPC 1.51: about 150 bytes.
inline constexpr int64_t kReadyHeaderBytes = 192;

// Grants: how many requests may be out without a grant, stragglers apart. Enough to hide the time that workers think:
// by Little's law, the rate at which the link takes answers times the time from request to ready. Never so many that
// their headers, all at once, would take more than a third of the budget; the link needs the rest for two answers. One
// a schedule, not thread-safe.
class GrantWindow {
 public:
  explicit GrantWindow(const LinkSchedule::Options& options);

  // What is known of the workers stays.
  void SetProfile(const LinkProfile& profile);

  int64_t Requests(int64_t budget_bytes) const { return Window(budget_bytes, kStock); }

  // While nothing is ready and nothing granted: those in stock would only be in the way of the first answer, at the
  // aggregator and at hosts with many workers. They leave with the first grant.
  int64_t FirstRequests(int64_t budget_bytes) const { return Window(budget_bytes, 0); }

  // What is out for so long is a straggler: twice the mean, and never less than what a full buffer makes anyone wait.
  std::chrono::nanoseconds StraggleAfter() const { return straggle_after_; }

  // Whether answers are ready about a round trip after their requests: two, or the time in which the link drains the
  // budget. Not before the first.
  bool ReadyAtOnce(int64_t budget_bytes) const;

  // Of the port buffer, should so many answers become ready at once.
  int64_t HeaderBytes(int64_t requests) const { return requests * header_bytes_; }

  // An answer that takes so much of the link was ready so long after its request.
  void Observe(std::chrono::nanoseconds ready_latency, int64_t answer_bytes);

 private:
  // Ready answers in stock, so that the link does not wait for one when the times of workers vary.
  static constexpr double kStock = 4;

  int64_t Window(int64_t budget_bytes, double stock) const;

  double bytes_per_ns_ = 0;
  int64_t header_bytes_ = 0;
  std::chrono::nanoseconds drain_time_{0};
  double rtt_ns_ = 0;

  // Means over the last hundred or so; nothing is known before the first.
  bool known_ = false;
  double ready_latency_ns_ = 0;
  double answer_bytes_ = 0;
  std::chrono::nanoseconds straggle_after_;
};

}  // namespace sluice
