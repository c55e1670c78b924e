#pragma once

#include <chrono>
#include <cstdint>

#include "sluice/link_profile.h"

namespace sluice {

// What the headers of one answer take of the port buffer when it becomes ready: a packet of their own. Measured with
// gRPC 1.51: about 150 bytes.
inline constexpr int64_t kReadyHeaderBytes = 192;

// Grants: how many requests may be out without a grant. Enough to hide the time that workers think: by Little's law,
// the rate at which the link takes answers times the time from request to ready. Never so many that their headers, all
// at once, would take more than a third of the budget; the link needs the rest for two answers. One a schedule, not
// thread-safe.
class GrantWindow {
 public:
  explicit GrantWindow(const LinkProfile& profile) : capacity_bytes_per_second_(profile.capacity_bytes_per_second) {}

  int64_t Requests(int64_t budget_bytes) const;

  // An answer of this cost was ready so long after its request.
  void Observe(std::chrono::nanoseconds ready_latency, int64_t cost_bytes);

 private:
  const double capacity_bytes_per_second_;
  // Means over the last hundred or so; nothing is known before the first.
  bool known_ = false;
  double ready_latency_seconds_ = 0;
  double cost_bytes_ = 0;
};

}  // namespace sluice
