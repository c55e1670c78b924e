#include "tools/sluice_stripe/progress.h"

#include <algorithm>
#include <cstdio>

#include <unistd.h>

#include "lib/cli/units.h"

namespace sluice {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(100);
constexpr const char* kClearLine = "\r\033[K";

}  // namespace

Progress::Progress(uint64_t total_bytes) : total_bytes_(total_bytes), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (terminal_) std::fputs(kClearLine, stderr);
}

void Progress::Show(uint64_t bytes) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now - shown_ < kInterval) return;
  shown_ = now;
  std::fprintf(stderr, "%s%s", kClearLine, FormatByteSize(static_cast<int64_t>(bytes)).c_str());
  if (total_bytes_ > 0)
    std::fprintf(stderr, " (%d%%)", static_cast<int>(std::min(100.0, 100.0 * bytes / total_bytes_)));
  std::fflush(stderr);
}

}  // namespace sluice
