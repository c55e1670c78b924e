#include "lib/storage/serving/deadline.h"

#include <algorithm>
#include <chrono>

namespace sluice {

absl::Duration TimeLeft(const grpc::ServerContextBase& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteDuration();
  return absl::FromChrono(deadline - std::chrono::system_clock::now());
}

absl::Duration TimeForLevelBelow(absl::Duration left, absl::Duration reserve) {
  return std::max(left - reserve, absl::ZeroDuration());
}

}  // namespace sluice
