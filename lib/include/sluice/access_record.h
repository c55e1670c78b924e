#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice {

// A call to a worker that has ended: a span of a trace, whose time is divided. FanOut, Endpoint and BlockReader report
// them, and sluice-proxy writes them to its access log. The texts live as long as the callback. Times are infinite if
// the call did not come so far.
struct AccessRecord {
  absl::string_view group;    // the client of a proxy; empty: this process
  absl::string_view method;   // "/package.Service/Method"; empty: it was not read
  absl::string_view worker;   // the address; empty: no worker was chosen
  absl::string_view pattern;  // the pattern of workers with which a proxy let the call in
  absl::string_view traffic_class;
  absl::Duration waited = absl::InfiniteDuration();    // from its beginning until its request left for the worker
  absl::Duration ready = absl::InfiniteDuration();     // from then until its response began
  absl::Duration granted = absl::InfiniteDuration();   // the part of the rest in which the response waited for its turn
  absl::Duration received = absl::InfiniteDuration();  // from the beginning of its response until the call ended
  absl::Duration took;                                 // all of it
  int64_t response_bytes = 0;                          // all messages; a proxy adds prefixes of 5 bytes
  absl::StatusCode outcome = absl::StatusCode::kOk;    // as the client received it
  // The option at which the link or the proxy refused or ended the call, such as "limits.calls"; empty: none did.
  absl::string_view limit;
  // The trace context of W3C in its metadata, with the trace and the parent of this span; empty: none.
  absl::string_view traceparent;
};

// Called on the link's thread when a call has ended; must not block. May be null.
using OnAccessRecord = std::function<void(const AccessRecord&)>;

}  // namespace sluice
