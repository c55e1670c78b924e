#include "lib/storage/serving/think_time.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {

absl::Status ThinkTime::Validate(const Options& options) {
  // This form also rejects NaN.
  if (!(options.tail_share >= 0 && options.tail_share <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("think_tail.share is ", options.tail_share, "; it must be 0 to 1"));
  }
  if ((options.tail_share > 0) != (options.tail > absl::ZeroDuration())) {
    return absl::InvalidArgumentError(absl::StrCat("think_tail.share is ", options.tail_share, " and think_tail.time ",
                                                   absl::FormatDuration(options.tail),
                                                   "; give both above 0, or neither"));
  }
  return absl::OkStatus();
}

absl::Duration ThinkTime::Next(uint32_t worker) {
  if (options_.tail_share == 0) return options_.usual;
  absl::MutexLock lock(&mutex_);
  auto found = workers_.find(worker);
  if (found == workers_.end()) {
    std::seed_seq seed{worker};  // generators seeded with consecutive numbers would draw similar values
    found = workers_.emplace(worker, std::mt19937(seed)).first;
  }
  return std::bernoulli_distribution(options_.tail_share)(found->second) ? options_.tail : options_.usual;
}

}  // namespace sluice
