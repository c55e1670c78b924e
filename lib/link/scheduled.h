#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {

// Something that the schedule of a link admits: a call, or the handshake of a connection. Its address is the tag of its
// CallRequest, so it lives until it has ended by EndUnsent or ScheduleRun::OnFinished. Used on the link's thread only.
class Scheduled {
 public:
  virtual ~Scheduled() = default;

  virtual void Send(int64_t granted_bytes) = 0;
  virtual void Grant(int64_t bytes) = 0;
  virtual void EndUnsent(absl::Status why) = 0;
  virtual void Abort() = 0;  // ScheduleRun::OnFinished follows

  uint64_t tag() { return reinterpret_cast<uintptr_t>(this); }
  CallId id() const { return id_; }  // in the schedule, since its last submission

 private:
  friend class ScheduleRun;

  CallId id_;
};

}  // namespace sluice
