#pragma once

#include <chrono>
#include <optional>

#include "sluice/link_schedule.h"

#include "absl/status/status.h"

namespace sluice {

// Divides the time of one attempt between its worker and the link. The worker's time runs from the request until the
// response is ready, and while granted bytes come. It stands still while the ready response waits for a grant. There is
// one for each attempt. Not thread-safe. Times must never decrease.
class AttemptTime {
 public:
  void OnSent(TimePoint now) { sent_ = now; }
  // The response is ready, and nothing that was granted is still to come.
  void OnHeld(TimePoint now) { held_since_ = now; }
  // Follows OnHeld.
  void OnGranted(TimePoint now) {
    held_ += now - *held_since_;
    held_since_.reset();
  }

  bool sent() const { return sent_.has_value(); }
  bool held() const { return held_since_.has_value(); }
  std::chrono::nanoseconds OfLink(TimePoint now) const {  // after OnSent
    return held_ + (held() ? now - *held_since_ : std::chrono::nanoseconds(0));
  }
  std::chrono::nanoseconds OfWorker(TimePoint now) const { return now - *sent_ - OfLink(now); }

  // Whether the link is to blame if the time is over now: the request was not sent, the response waits for a grant, or
  // it waited for longer than the worker took. The last rule is for large responses that take turns: at any time a few
  // of them have just been granted a part.
  bool LinkIsLate(TimePoint now) const { return !sent() || held() || OfLink(now) > OfWorker(now); }
  // DeadlineExceeded, with what the link was late with.
  absl::Status WhyLinkIsLate(TimePoint now) const;

 private:
  std::optional<TimePoint> sent_;
  std::optional<TimePoint> held_since_;
  std::chrono::nanoseconds held_{0};  // before held_since_
};

}  // namespace sluice
