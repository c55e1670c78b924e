#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice {

enum class ShowProgress { kAuto, kAlways, kNever };  // auto: if stderr is a terminal
absl::StatusOr<ShowProgress> ParseShowProgress(std::string_view text);

// A line on stderr that shows progress. Not thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(ShowProgress show);
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Shows a transfer and its speed.
  void Update(uint64_t bytes, uint64_t total_bytes);  // total 0: not known
  // Shows a stage of a longer operation: the completed share of the whole, from 0 to 1, and the current step.
  void UpdateStage(double share, std::string_view text);

 private:
  bool IsDue();  // the bar is shown, and was not drawn a moment ago

  const bool shown_;
  const std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace sluice
