#pragma once

#include <chrono>
#include <optional>

#include "sluice/time_point.h"

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/scheduling/held_for.h"

namespace sluice {

// Divides the time of one attempt between its worker and this side (the link and the owner of the call). The worker's
// time runs from the request until the response is ready, and while granted bytes arrive. It stops while the ready
// response waits for a grant, or for room at its owner. There is one for each attempt. Not thread-safe. Times must
// never decrease.
class AttemptTime {
 public:
  void OnSent(TimePoint now) { sent_ = now; }
  // See ScheduledStream::OnHeld.
  void OnHeld(TimePoint now, HeldFor held_for) {
    for_grant_ = ForGrant(now);
    for_room_ = ForRoom(now);
    held_for_ = held_for;
    since_ = now;
  }

  bool sent() const { return sent_.has_value(); }
  bool held() const { return held_for_ != HeldFor::kNothing; }
  std::chrono::nanoseconds OfLink(TimePoint now) const { return ForGrant(now) + ForRoom(now); }  // after OnSent
  std::chrono::nanoseconds OfWorker(TimePoint now) const { return now - *sent_ - OfLink(now); }

  // Returns whether this side is to blame if the attempt times out now. It is if the request was not sent, or if the
  // response waits for a grant or for room. It also is if the response has waited longer than the worker took. This
  // case covers large responses that take turns: at any time a few of them have just been granted a part.
  bool LinkIsLate(TimePoint now) const { return !sent() || held() || OfLink(now) > OfWorker(now); }
  // Returns DeadlineExceeded with the time that the response waited, and the resource that it waited for. `room` names
  // the resource of HeldFor::kRoom.
  absl::Status WhyLinkIsLate(TimePoint now, absl::string_view room) const;

 private:
  std::chrono::nanoseconds ForGrant(TimePoint now) const { return for_grant_ + Since(now, HeldFor::kGrant); }
  std::chrono::nanoseconds ForRoom(TimePoint now) const { return for_room_ + Since(now, HeldFor::kRoom); }
  std::chrono::nanoseconds Since(TimePoint now, HeldFor held_for) const {
    return held_for_ == held_for ? now - since_ : std::chrono::nanoseconds(0);
  }

  std::optional<TimePoint> sent_;
  HeldFor held_for_ = HeldFor::kNothing;
  TimePoint since_;                        // when held_for_ began
  std::chrono::nanoseconds for_grant_{0};  // held before since_
  std::chrono::nanoseconds for_room_{0};   // likewise
};

}  // namespace sluice
