#include "lib/proxy/call_route.h"

#include <algorithm>
#include <utility>

namespace sluice {

absl::StatusOr<std::shared_ptr<Worker>> CallRoute::Next() {
  absl::StatusOr<Target::Choice> choice =
      other_.has_value() ? absl::StatusOr<Target::Choice>(*std::exchange(other_, std::nullopt)) : target_->Pick();
  if (!choice.ok()) return choice.status();
  pattern_ = std::move(choice->pattern);
  row_ = choice->worker->row();
  sent_.reset();
  return std::move(choice->worker);
}

bool CallRoute::FindOther() {
  if (++unreached_ >= target_->workers()) return false;
  absl::StatusOr<Target::Choice> choice = target_->Pick();
  if (!choice.ok() || !choice->worker->failure().ok()) return false;
  other_ = *std::move(choice);
  return true;
}

bool CallRoute::FindRetry(size_t max_attempts, const RetryThrottle::Options& throttle) {
  if (max_attempts == 1 || target_->workers() == 1) return false;
  target_->retries().OnFailed(throttle);
  if (tried_.size() + 1 >= max_attempts || !target_->retries().MayRetry(throttle)) return false;
  tried_.push_back(row_);
  absl::StatusOr<Target::Choice> choice = target_->Pick(tried_);
  if (choice.ok() && choice->worker->failure().ok() &&
      std::find(tried_.begin(), tried_.end(), choice->worker->row()) == tried_.end()) {
    other_ = *std::move(choice);
    return true;
  }
  tried_.pop_back();
  return false;
}

void CallRoute::OnEnded(const Ended& ended, const RetryThrottle::Options& throttle) {
  if (target_ != nullptr && ended.code == absl::StatusCode::kOk) target_->retries().OnOk(throttle);
  if (!sent_.has_value() || ended.link_is_late) return;
  target_->OnCallEnded({.method = ended.method,
                        .worker = row_,
                        .sent = *sent_,
                        .end = OutlierEjection::EndOf(ended.code, ready_after_.has_value(), ended.has_status),
                        .took = ready_after_.value_or(target_->now() - *sent_)});
}

}  // namespace sluice
