#include "lib/scheduling/limit_status.h"

#include "absl/strings/cord.h"

namespace sluice {
namespace {

constexpr char kLimitPayload[] = "sluice/limit";

}  // namespace

absl::Status AtLimit(absl::string_view limit, absl::string_view message) {
  absl::Status why = absl::ResourceExhaustedError(message);
  why.SetPayload(kLimitPayload, absl::Cord(limit));
  return why;
}

std::string LimitOf(const absl::Status& why) {
  const absl::optional<absl::Cord> limit = why.GetPayload(kLimitPayload);
  return limit.has_value() ? std::string(*limit) : "";
}

}  // namespace sluice
