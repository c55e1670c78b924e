#include "lib/http2/first_request.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <nghttp2/nghttp2.h>

namespace sluice {
namespace {

// Bounds the frames before the decision, and the header list. An HPACK block may be a small part of its list.
constexpr size_t kMaxBytes = 64u << 10;

absl::string_view Fragment(const FrameHeader& frame, absl::string_view payload) {
  if (frame.type != NGHTTP2_HEADERS) return payload;
  size_t padding = 0;
  if ((frame.flags & NGHTTP2_FLAG_PADDED) != 0 && !payload.empty()) {
    padding = static_cast<uint8_t>(payload.front());
    payload.remove_prefix(1);
  }
  constexpr size_t kPriorityBytes = 5;
  if ((frame.flags & NGHTTP2_FLAG_PRIORITY) != 0) payload.remove_prefix(std::min(kPriorityBytes, payload.size()));
  payload.remove_suffix(std::min(padding, payload.size()));
  return payload;
}

// Whether a client may send this frame before its first request has come whole. `stream_of_block`: of a header block
// that has begun; 0: none has.
bool MayPrecedeRequest(const FrameHeader& frame, uint32_t stream_of_block) {
  if (stream_of_block != 0) return frame.type == NGHTTP2_CONTINUATION && frame.stream == stream_of_block;
  if (frame.type == NGHTTP2_HEADERS) return frame.stream != 0;
  return frame.type == NGHTTP2_SETTINGS || frame.type == NGHTTP2_WINDOW_UPDATE || frame.type == NGHTTP2_PRIORITY;
}

// Returns nullopt if the block is malformed or its list too large.
std::optional<HeaderList> Inflate(absl::string_view block) {
  nghttp2_hd_inflater* made = nullptr;
  if (nghttp2_hd_inflate_new(&made) != 0) return std::nullopt;
  const std::unique_ptr<nghttp2_hd_inflater, decltype(&nghttp2_hd_inflate_del)> inflater(made, nghttp2_hd_inflate_del);
  HeaderList list;
  size_t list_bytes = 0;
  while (true) {
    nghttp2_nv field;
    int flags = 0;
    const auto* const in = reinterpret_cast<const uint8_t*>(block.data());
    const ssize_t read = nghttp2_hd_inflate_hd2(inflater.get(), &field, &flags, in, block.size(), 1);
    if (read < 0) return std::nullopt;
    block.remove_prefix(static_cast<size_t>(read));
    if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) return list;
    if ((flags & NGHTTP2_HD_INFLATE_EMIT) == 0) return std::nullopt;
    list.push_back({std::string(reinterpret_cast<const char*>(field.name), field.namelen),
                    std::string(reinterpret_cast<const char*>(field.value), field.valuelen)});
    list_bytes += field.namelen + field.valuelen + kHeaderFieldOverhead;
    if (list_bytes > kMaxBytes) return std::nullopt;
  }
}

}  // namespace

void FirstRequest::Read(absl::string_view bytes, std::string& out) {
  if (!decided_) read_bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (payload_left_ > 0) {
      const absl::string_view part = bytes.substr(0, payload_left_);
      bytes.remove_prefix(part.size());
      out.append(part.data(), part.size());
      if (!decided_ && stream_of_block_ != 0) payload_.append(part.data(), part.size());
      payload_left_ -= static_cast<uint32_t>(part.size());
      if (payload_left_ == 0) EndFrame();
      continue;
    }
    const absl::string_view part = bytes.substr(0, FrameHeader::kBytes - frame_header_.size());
    bytes.remove_prefix(part.size());
    frame_header_.append(part.data(), part.size());
    if (frame_header_.size() == FrameHeader::kBytes) BeginFrame(out);
  }
  if (read_bytes_ > kMaxBytes) decided_ = true;
}

void FirstRequest::BeginFrame(std::string& out) {
  frame_ = FrameHeader::Parse(frame_header_);
  const std::string header = std::exchange(frame_header_, {});
  if (frame_.type == NGHTTP2_SETTINGS && (frame_.flags & NGHTTP2_FLAG_ACK) != 0 && frame_.size == 0 &&
      !std::exchange(acknowledged_, true)) {
    return;
  }
  out += header;
  payload_left_ = frame_.size;
  if (!MayPrecedeRequest(frame_, stream_of_block_)) decided_ = true;
  if (stream_of_block_ == 0 && frame_.type == NGHTTP2_HEADERS) stream_of_block_ = frame_.stream;
  if (payload_left_ == 0) EndFrame();
}

void FirstRequest::EndFrame() {
  const std::string payload = std::exchange(payload_, {});
  if (decided_ || stream_of_block_ == 0) return;
  const absl::string_view fragment = Fragment(frame_, payload);
  block_.append(fragment.data(), fragment.size());
  if ((frame_.flags & NGHTTP2_FLAG_END_HEADERS) == 0) return;
  decided_ = true;
  stream_of_block_ = 0;
  head_ = Inflate(std::exchange(block_, {}));
}

}  // namespace sluice
