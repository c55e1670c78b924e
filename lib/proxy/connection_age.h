#pragma once

#include <chrono>

#include "sluice/time_point.h"

namespace sluice {

// Decides when a client's connection must end because of its age. There is one for each client connection. Not
// thread-safe.
class ConnectionAge {
 public:
  enum class Step {
    kNone,
    kAnnounce,  // tell the client that it must connect again; the calls that it has already sent still arrive
    kGoAway,    // refuse new calls, and end with the last one
    kEnd,       // the grace is over
  };

  // The connection begins. `max_age` is not 0. `random` is 0 to 1: clients that connected together leave one by one.
  void Begin(TimePoint now, std::chrono::nanoseconds max_age, double random) {
    const double factor = 1 + kJitter * (2 * random - 1);
    ends_at_ = now + std::chrono::duration_cast<TimePoint::duration>(max_age * factor);
  }
  // Returns the step that is due, each one once and in this order. Call it about once a second.
  Step Look(TimePoint now, std::chrono::nanoseconds grace) {
    if (now < ends_at_) return Step::kNone;
    switch (last_) {
      case Step::kNone:
        return last_ = Step::kAnnounce;
      case Step::kAnnounce:
        return last_ = Step::kGoAway;
      case Step::kGoAway:
        return now - ends_at_ < grace ? Step::kNone : last_ = Step::kEnd;
      case Step::kEnd:
        break;
    }
    return Step::kNone;
  }

 private:
  static constexpr double kJitter = 0.1;  // as gRPC has

  TimePoint ends_at_ = TimePoint::max();
  Step last_ = Step::kNone;
};

}  // namespace sluice
