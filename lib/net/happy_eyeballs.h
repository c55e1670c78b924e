#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "sluice/time_point.h"

#include "lib/net/executor.h"

namespace sluice {

// Orders addresses for HappyEyeballs: IPv4 and IPv6 alternate, beginning with the family of the first address. Keeps
// the order within each family.
std::vector<WorkerAddress> AlternateFamilies(std::vector<WorkerAddress> addresses);

// Decides when to try which address of a name, by RFC 8305 ("Happy Eyeballs"). An attempt that has not ended within
// kAttemptDelay, or that fails, is followed by an attempt at the next address. Earlier attempts go on, and the first
// connection wins. There is one for each connection that is made. Pure: no clock, and no socket.
class HappyEyeballs {
 public:
  // Recommended by RFC 8305, section 5. A family that is a black hole costs this time.
  static constexpr std::chrono::milliseconds kAttemptDelay{250};

  explicit HappyEyeballs(size_t addresses) : addresses_(addresses) {}

  struct Actions {
    std::optional<size_t> attempt = std::nullopt;  // the address to try now
    TimePoint wake = TimePoint::max();             // when OnTimer is due; replaces the time before
    bool failed = false;                           // no address is left, and no attempt is under way
  };
  Actions Begin(TimePoint now) { return TryNext(now); }
  Actions OnTimer(TimePoint now);
  Actions OnAttemptFailed(TimePoint now);

 private:
  Actions TryNext(TimePoint now);

  const size_t addresses_;
  size_t tried_ = 0;
  size_t under_way_ = 0;
  TimePoint wake_ = TimePoint::max();
};

}  // namespace sluice
