#pragma once

#include <chrono>
#include <cstdint>

#include "sluice/schedule.h"

namespace sluice {

// The bytes that the headers of one response take of the port buffer when the response becomes ready, at least: they
// come in a packet of their own, which has about 150 bytes from gRPC 1.51. Where the buffer counts packets, it is a
// full frame.
inline constexpr int64_t kReadyHeaderBytes = 192;

// Grants: how many requests may be out without a grant, without stragglers. They are enough to hide the time that
// workers think: by Little's law, the rate at which the link takes answers times the time from request to ready. Their
// headers together never take more than a third of the budget; the link needs the rest for two responses. There is one
// for each schedule. Not thread-safe.
class GrantWindow {
 public:
  explicit GrantWindow(const ScheduleOptions& options);

  // Keeps what is known of the workers.
  void SetProfile(const LinkProfile& profile);
  void SetBudget(int64_t link_bytes);  // the whole budget of the link, which may be larger than the profile's buffer

  int64_t Requests(int64_t budget_bytes) const { return Window(budget_bytes, kStock); }

  // The window while nothing is ready and nothing granted, without the requests in stock: at the aggregator and at
  // hosts with many workers they would be in the way of the first response. They leave with the first grant.
  int64_t FirstRequests(int64_t budget_bytes) const { return Window(budget_bytes, 0); }

  // A call that is out for this long is a straggler: twice the mean, at least the delay of a full buffer, and at most
  // eight of these. So calls that take seconds, as long polls do, stop no others: one window of requests leaves in each
  // of these times, and the headers of their responses, which come as far apart, take a 24th of the link.
  std::chrono::nanoseconds StraggleAfter() const { return straggle_after_; }

  // Whether responses are ready soon after their requests: within two round trips, or the time in which the link drains
  // the budget. False before the first response.
  bool ReadyAtOnce(int64_t budget_bytes) const;

  // The bytes of the port buffer that the headers of this many responses take.
  int64_t HeaderBytes(int64_t requests) const { return requests * header_bytes_; }

  // What they take beyond their usual room.
  int64_t LargeHeaderBytes(int64_t requests) const { return requests * (header_bytes_ - usual_header_bytes_); }

  // Takes note of the headers of one response, as they came: metadata of some KB, or an error with details, takes more
  // than kReadyHeaderBytes, and flow control does not hold it back.
  void ObserveHeaders(int64_t wire_bytes);

  // Takes note of a response: the time from its request until it was ready, and its cost on the link.
  void Observe(std::chrono::nanoseconds ready_latency, int64_t answer_bytes);

 private:
  // Number of ready responses in stock, so that the link does not wait for one when the times of workers vary.
  static constexpr double kStock = 4;

  int64_t Window(int64_t budget_bytes, double stock) const;
  void SetHeaderBytes();
  void SetStraggleAfter(double wanted_ns);

  double bytes_per_ns_ = 0;
  int64_t header_bytes_ = 0;
  int64_t usual_header_bytes_ = 0;
  LinkProfile profile_;
  int64_t link_bytes_ = 0;
  std::chrono::nanoseconds drain_time_{0};
  double rtt_ns_ = 0;

  // Means over about the last hundred answers; known_ is false before the first.
  bool known_ = false;
  double ready_latency_ns_ = 0;
  double answer_bytes_ = 0;
  double header_wire_bytes_ = 0;  // 0 before the first
  double wanted_straggle_after_ns_;
  std::chrono::nanoseconds straggle_after_{0};
};

}  // namespace sluice
