#include "lib/scheduling/attempt_time.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace sluice {

absl::Status AttemptTime::WhyLinkIsLate(TimePoint now, absl::string_view room) const {
  if (!sent()) return absl::DeadlineExceededError("the request was not sent before the deadline");
  const auto waited = [](absl::string_view what, std::chrono::nanoseconds time) {
    const absl::Duration rounded = absl::Trunc(absl::FromChrono(time), absl::Milliseconds(1));
    return absl::StrCat("waited for ", what, " for ", absl::FormatDuration(rounded));
  };
  std::string waits;
  if (ForGrant(now).count() > 0 || ForRoom(now).count() == 0) waits = waited("the link's grant", ForGrant(now));
  if (ForRoom(now).count() > 0) absl::StrAppend(&waits, waits.empty() ? "" : " and ", waited(room, ForRoom(now)));
  return absl::DeadlineExceededError(absl::StrCat("the response was ready and ", waits, " before the deadline"));
}

}  // namespace sluice
