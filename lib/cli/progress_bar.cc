#include "lib/cli/progress_bar.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "lib/cli/units.h"

namespace sluice {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(100);
constexpr int kBarWidth = 30;
constexpr const char* kClearLine = "\r\033[K";

std::string Bar(double share) {
  const int filled = static_cast<int>(share * kBarWidth);
  return absl::StrCat("[", std::string(filled, '#'), std::string(kBarWidth - filled, '.'), "] ",
                      static_cast<int>(share * 100), "%  ");
}

}  // namespace

absl::StatusOr<ShowProgress> ParseShowProgress(std::string_view text) {
  if (text.empty() || text == "auto") return ShowProgress::kAuto;
  if (text == "always") return ShowProgress::kAlways;
  if (text == "never") return ShowProgress::kNever;
  return absl::InvalidArgumentError(absl::StrCat("\"", std::string(text), "\" is none of auto, always and never"));
}

ProgressBar::ProgressBar(ShowProgress show)
    : shown_(show == ShowProgress::kAlways || (show == ShowProgress::kAuto && isatty(STDERR_FILENO) == 1)),
      started_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() {
  if (shown_) std::fputs(kClearLine, stderr);
}

bool ProgressBar::IsDue() {
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || now - drawn_ < kInterval) return false;
  drawn_ = now;
  return true;
}

void ProgressBar::Update(uint64_t bytes, uint64_t total_bytes) {
  if (!IsDue()) return;
  const double seconds = std::chrono::duration<double>(drawn_ - started_).count();
  const std::string bar =
      total_bytes == 0 ? "" : Bar(std::min(1.0, static_cast<double>(bytes) / static_cast<double>(total_bytes)));
  const std::string rate =
      seconds > 0 ? absl::StrCat("  ", FormatBitRate(8.0 * static_cast<double>(bytes) / seconds)) : "";
  std::fprintf(stderr, "%s%s%s%s", kClearLine, bar.c_str(), FormatByteSize(static_cast<int64_t>(bytes)).c_str(),
               rate.c_str());
  std::fflush(stderr);
}

void ProgressBar::UpdateStage(double share, std::string_view text) {
  if (!IsDue()) return;
  std::fprintf(stderr, "%s%s%.*s", kClearLine, Bar(std::clamp(share, 0.0, 1.0)).c_str(), static_cast<int>(text.size()),
               text.data());
  std::fflush(stderr);
}

}  // namespace sluice
