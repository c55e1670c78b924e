#include "lib/fan_out/attempt_time.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace sluice {

absl::Status AttemptTime::WhyLinkIsLate(TimePoint now) const {
  if (!sent()) return absl::DeadlineExceededError("the request was not sent before the deadline");
  const absl::Duration waited = absl::Trunc(absl::FromChrono(OfLink(now)), absl::Milliseconds(1));
  return absl::DeadlineExceededError(absl::StrCat("the response was ready and waited for the link's grant for ",
                                                  absl::FormatDuration(waited), " before the deadline"));
}

}  // namespace sluice
