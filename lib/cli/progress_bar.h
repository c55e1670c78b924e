#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice {

enum class ShowProgress { kAuto, kAlways, kNever };  // auto: where stderr is a terminal
absl::StatusOr<ShowProgress> ParseShowProgress(std::string_view text);

// One line on stderr that tells how far something is. Not thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(ShowProgress show);
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // A transfer, and how fast it is.
  void Update(uint64_t bytes, uint64_t total_bytes);  // total 0: not known
  // A stage of something longer: how much of the whole is done, from 0 to 1, and what goes on.
  void UpdateStage(double share, std::string_view text);

 private:
  bool IsDue();  // shown, and not drawn a moment ago

  const bool shown_;
  const std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace sluice
