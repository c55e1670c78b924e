#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "sluice/time_point.h"

#include "absl/strings/str_cat.h"

namespace sluice::testing {

// Checks that the link has work while a call waits: no ready response and no request waits for long while it fits, and
// an eighth of the budget is free besides (docs/internals/scheduling.md). Requests that wait for the room of their
// headers have a third before further grants. All other bounds are in favour of the client, too: a grant may cost as
// much as the largest part that waits, and each call that may send headers has room for them. Not for worlds
// with large headers: a request that expects them waits for the room that they take.
class FreeRoom {
 public:
  // Timers are late by a millisecond, and turns by 5 ms.
  static constexpr std::chrono::milliseconds kLateness{20};

  // At the end of a turn.
  struct Turn {
    bool response_waits = false;
    bool request_waits = false;
    int64_t charged_bytes = 0;
    int64_t part_bytes = 0;      // the largest cost of the next grant of a response that waits
    int64_t ready_bytes = 0;     // at workers, not granted
    int64_t expected_bytes = 0;  // the most that the client may expect of one response
    // Calls that may send headers at any time: not ready, before their trailers, or drained since a drain time.
    int64_t silent_calls = 0;
  };

  // Requests may stop once a quarter of `most_ready_bytes` waits at workers, or is expected.
  FreeRoom(int64_t budget_bytes, int64_t most_ready_bytes)
      : budget_bytes_(budget_bytes), most_ready_bytes_(most_ready_bytes) {}

  // Returns the breach, if there is one.
  std::optional<std::string> Check(const Turn& turn, TimePoint now) {
    const int64_t third_bytes = budget_bytes_ / 3;
    const int64_t header_bytes = (turn.silent_calls + 1) * kHeaderBytes;
    const int64_t charged_bytes = turn.charged_bytes + header_bytes + budget_bytes_ / 8;
    const int64_t reserve_bytes = turn.request_waits ? third_bytes : 0;
    const bool response_fits = turn.response_waits && charged_bytes + turn.part_bytes + reserve_bytes <= budget_bytes_;
    const bool has_enough = turn.ready_bytes >= budget_bytes_ ||
                            turn.ready_bytes + turn.silent_calls * turn.expected_bytes >= most_ready_bytes_ / 4;
    const bool request_fits =
        turn.request_waits && !has_enough && header_bytes < third_bytes && charged_bytes <= budget_bytes_;
    const auto lasts = [now](bool fits, TimePoint& since) {
      if (!fits || since == TimePoint()) since = now;
      return now - since > kLateness;
    };
    const bool response_breach = lasts(response_fits, response_since_);
    const bool request_breach = lasts(request_fits, request_since_);
    if (!response_breach && !request_breach) return std::nullopt;
    return absl::StrCat("a ", response_breach ? "response" : "request", " waits while ", turn.charged_bytes,
                        " bytes are on the way, with headers of ", turn.silent_calls, " calls; the next part costs ",
                        turn.part_bytes, ", ", turn.ready_bytes, " bytes are ready, and the budget is ", budget_bytes_);
  }
  void Restart() { response_since_ = request_since_ = TimePoint(); }

 private:
  static constexpr int64_t kHeaderBytes = 192;

  const int64_t budget_bytes_;
  const int64_t most_ready_bytes_;
  TimePoint response_since_;
  TimePoint request_since_;
};

}  // namespace sluice::testing
