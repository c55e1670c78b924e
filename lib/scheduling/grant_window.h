#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sluice/schedule.h"

namespace sluice {

// The minimum number of bytes of the port buffer that the headers of a ready response take. They come in a packet of
// their own, of about 150 bytes from gRPC 1.51. If the buffer counts packets, it is a full frame.
inline constexpr int64_t kReadyHeaderBytes = 192;

// For grants: how many requests may be out without a grant, not counting stragglers. This number hides the time that
// workers think. By Little's law it is the rate at which the link takes responses, times the time from request to
// ready. The headers of these responses together never take more than a third of the budget; the link needs the rest
// for two responses. There is one for each schedule. Not thread-safe.
class GrantWindow {
 public:
  explicit GrantWindow(const ScheduleOptions& options);

  // Keeps the measurements of the workers.
  void SetProfile(const LinkProfile& profile, bool paced);
  // Sets the whole budget of the link, which may be larger than the profile's buffer.
  void SetBudget(int64_t link_bytes);

  int64_t Requests(int64_t budget_bytes) const { return Window(all_, 1, budget_bytes, kStock); }

  // The window while no response is ready or granted, without the requests in stock. At the aggregator, and at hosts
  // with many workers, requests in stock would delay the first response. They leave with the first grant.
  // For one class, like the next, since classes differ in their sizes and times.
  int64_t FirstRequests(int64_t budget_bytes, size_t traffic_class = 0, double share = 1) const {
    return Window(classes_[traffic_class], share, budget_bytes, 0);
  }

  // The window of one class that has this share of the link, from 0 to 1.
  int64_t Requests(int64_t budget_bytes, size_t traffic_class, double share) const {
    return Window(classes_[traffic_class], share, budget_bytes, kStock);
  }

  // A call that is out for this long is a straggler. The time is twice the mean time to ready, at least the drain time
  // of a full buffer, and at most eight drain times. So calls that take seconds, such as long polls, stop no others.
  // One window of requests leaves in each of these times. The headers of their responses arrive at the same rate, and
  // take a 24th of the link.
  std::chrono::nanoseconds StraggleAfter() const { return straggle_after_; }

  // Returns whether responses are ready soon after their requests: within two round trips, or within the time in which
  // the link drains the budget. Returns false before the first response.
  bool ReadyAtOnce(int64_t budget_bytes) const;

  // Returns the bytes of the port buffer that the headers of this many responses take.
  int64_t HeaderBytes(int64_t requests) const { return requests * header_bytes_; }

  // Returns how many of these bytes exceed the usual size of the headers.
  int64_t LargeHeaderBytes(int64_t requests) const { return requests * (header_bytes_ - usual_header_bytes_); }

  // Records the size of the headers of one response. Metadata of some KB, or an error with details, takes more than
  // kReadyHeaderBytes, and flow control does not hold headers back. Ignores sizes below 1.
  void ObserveHeaders(int64_t wire_bytes);

  // Records a response of a class: the time from its request until it was ready, and its cost on the link.
  void Observe(std::chrono::nanoseconds ready_latency, int64_t answer_bytes, size_t traffic_class = 0);

 private:
  // Number of ready responses in stock, so that the link has work although the times of workers vary.
  static constexpr double kStock = 4;

  // Means over about the last hundred responses; known is false before the first.
  struct Responses {
    void Observe(std::chrono::nanoseconds ready_latency, int64_t response_bytes);

    bool known = false;
    double ready_latency_ns = 0;
    double answer_bytes = 0;
  };

  int64_t Window(const Responses& responses, double share, int64_t budget_bytes, double stock) const;
  void SetHeaderBytes();
  void SetStraggleAfter(double wanted_ns);

  double bytes_per_ns_ = 0;
  bool paced_ = false;
  int64_t header_bytes_ = 0;
  int64_t usual_header_bytes_ = 0;
  LinkProfile profile_;
  int64_t link_bytes_ = 0;
  std::chrono::nanoseconds drain_time_{0};
  double rtt_ns_ = 0;

  Responses all_;
  std::vector<Responses> classes_;
  double header_wire_bytes_ = 0;  // mean; 0 before the first response
  double wanted_straggle_after_ns_;
  std::chrono::nanoseconds straggle_after_{0};
};

}  // namespace sluice
