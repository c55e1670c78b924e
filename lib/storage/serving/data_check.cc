#include "lib/storage/serving/data_check.h"

#include <utility>

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kPatience{100};

}  // namespace

DataCheck::DataCheck(std::function<absl::Status()> check, DiskPool::Options options)
    : check_(std::move(check)), pool_("the data", std::move(options)) {}

absl::Status DataCheck::Look() {
  pool_.Look();
  std::unique_lock<std::mutex> lock(state_->mutex);
  if (!std::exchange(state_->checking, true)) {
    lock.unlock();
    pool_.Submit(
        [this]() -> absl::StatusOr<DiskBytes> {
          absl::Status checked = check_();
          if (!checked.ok()) return checked;
          return DiskBytes();
        },
        [state = state_](const absl::StatusOr<DiskBytes>& checked) {
          const std::lock_guard<std::mutex> done(state->mutex);
          state->checking = false;
          state->last = checked.status();
          state->changed.notify_all();
        });
    lock.lock();
  }
  state_->changed.wait_for(lock, kPatience, [this] { return !state_->checking; });
  return state_->last;
}

}  // namespace sluice
