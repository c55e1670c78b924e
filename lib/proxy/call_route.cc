#include "lib/proxy/call_route.h"

#include <utility>

namespace sluice {

absl::StatusOr<std::shared_ptr<Worker>> CallRoute::Next() {
  absl::StatusOr<Target::Choice> choice =
      other_.has_value() ? absl::StatusOr<Target::Choice>(*std::exchange(other_, std::nullopt)) : target_->Pick();
  if (!choice.ok()) return choice.status();
  pattern_ = std::move(choice->pattern);
  return std::move(choice->worker);
}

bool CallRoute::FindOther() {
  if (++unreached_ >= target_->workers()) return false;
  absl::StatusOr<Target::Choice> choice = target_->Pick();
  if (!choice.ok() || !choice->worker->failure().ok()) return false;
  other_ = *std::move(choice);
  return true;
}

}  // namespace sluice
