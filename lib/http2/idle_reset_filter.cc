#include "lib/http2/idle_reset_filter.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr size_t kFrameHeader = 9;  // RFC 9113, section 4.1
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kRstStream = 3;
constexpr size_t kRstStreamBytes = 4;

uint32_t Number(absl::string_view bytes) {
  uint32_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

}  // namespace

absl::string_view IdleResetFilter::Pass(absl::string_view bytes) {
  std::string joined;
  if (!kept_.empty()) {
    joined = std::exchange(kept_, std::string());
    joined.append(bytes.data(), bytes.size());
    bytes = joined;
  }
  passed_.clear();
  size_t begin = 0;  // the first byte that was not passed on yet
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t rest = bytes.size() - at;
    if (skip_bytes_ > 0) {
      const size_t skipped = std::min<uint64_t>(skip_bytes_, rest);
      skip_bytes_ -= skipped;
      at += skipped;
      continue;
    }
    if (rest < kFrameHeader) break;
    const uint32_t size = Number(bytes.substr(at, 3));
    const auto type = static_cast<uint8_t>(bytes[at + 3]);
    const uint32_t stream = Number(bytes.substr(at + 5, 4)) & 0x7fffffff;
    if (type == kRstStream && size == kRstStreamBytes && stream > last_stream_) {
      if (rest < kFrameHeader + kRstStreamBytes) break;
      passed_.append(bytes.data() + begin, at - begin);
      at += kFrameHeader + kRstStreamBytes;
      begin = at;
      continue;
    }
    if (type == kHeaders) last_stream_ = std::max(last_stream_, stream);
    skip_bytes_ = size;
    at += kFrameHeader;
  }
  kept_.assign(bytes.data() + at, bytes.size() - at);
  const absl::string_view passed = bytes.substr(begin, at - begin);
  if (passed_.empty() && joined.empty()) return passed;
  passed_.append(passed.data(), passed.size());
  return passed_;
}

}  // namespace sluice
