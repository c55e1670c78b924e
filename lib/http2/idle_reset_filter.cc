#include "lib/http2/idle_reset_filter.h"

#include <algorithm>
#include <utility>

#include <nghttp2/nghttp2.h>

#include "lib/http2/frame_header.h"

namespace sluice {
namespace {

constexpr size_t kRstStreamBytes = 4;

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
    if (rest < FrameHeader::kBytes) break;
    const FrameHeader frame = FrameHeader::Parse(bytes.substr(at));
    if (frame.type == NGHTTP2_RST_STREAM && frame.size == kRstStreamBytes && frame.stream > last_stream_) {
      if (rest < FrameHeader::kBytes + kRstStreamBytes) break;
      passed_.append(bytes.data() + begin, at - begin);
      at += FrameHeader::kBytes + kRstStreamBytes;
      begin = at;
      continue;
    }
    if (frame.type == NGHTTP2_HEADERS) last_stream_ = std::max(last_stream_, frame.stream);
    skip_bytes_ = frame.size;
    at += FrameHeader::kBytes;
  }
  kept_.assign(bytes.data() + at, bytes.size() - at);
  const absl::string_view passed = bytes.substr(begin, at - begin);
  if (passed_.empty() && joined.empty()) return passed;
  passed_.append(passed.data(), passed.size());
  return passed_;
}

}  // namespace sluice
