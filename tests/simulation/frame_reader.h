#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice::testing {

// Reads the frames of one direction of an HTTP/2 connection (RFC 9113, section 4.1), which arrive cut anywhere.
class FrameReader {
 public:
  enum Type : uint8_t { kData = 0, kHeaders = 1, kRstStream = 3, kGoAway = 7, kWindowUpdate = 8 };  // section 6

  // Skips this many bytes before the first frame.
  explicit FrameReader(size_t skip_bytes = 0) : skip_bytes_(skip_bytes) {}

  // Calls `on_data` with each piece of DATA, and `on_frame` at the end of each frame.
  template <class FrameEvent, class DataEvent>
  void Read(absl::string_view bytes, FrameEvent on_frame, DataEvent on_data) {
    const size_t skipped = std::min(skip_bytes_, bytes.size());
    skip_bytes_ -= skipped;
    bytes.remove_prefix(skipped);
    while (true) {
      if (head_bytes_ < head_.size()) {
        const size_t taken = std::min(head_.size() - head_bytes_, bytes.size());
        std::copy_n(bytes.begin(), taken, head_.begin() + static_cast<std::ptrdiff_t>(head_bytes_));
        head_bytes_ += taken;
        bytes.remove_prefix(taken);
        if (head_bytes_ < head_.size()) return;
        payload_.clear();
        payload_bytes_ = size();
      }
      const size_t taken = std::min(payload_bytes_, bytes.size());
      payload_bytes_ -= taken;
      const bool whole = payload_bytes_ == 0;
      if (type() == kData) {
        on_data(bytes.substr(0, taken));
      } else if (payload_.size() < 16) {
        payload_.append(bytes.data(), std::min<size_t>(taken, 16));
      }
      bytes.remove_prefix(taken);
      if (!whole) return;
      on_frame();
      head_bytes_ = 0;
    }
  }

  // Properties of the current frame.
  uint8_t type() const { return head_[3]; }
  uint8_t flags() const { return head_[4]; }
  uint32_t stream() const {
    return static_cast<uint32_t>((Byte(5) & 0x7f) << 24 | Byte(6) << 16 | Byte(7) << 8 | Byte(8));
  }
  size_t size() const { return Byte(0) << 16 | Byte(1) << 8 | Byte(2); }  // of its payload
  const std::string& payload() const { return payload_; }                 // its first bytes, except for DATA

 private:
  size_t Byte(size_t index) const { return head_[index]; }

  size_t skip_bytes_;
  std::array<uint8_t, 9> head_{};
  size_t head_bytes_ = 0;
  size_t payload_bytes_ = 0;  // bytes that are still to come
  std::string payload_;
};

}  // namespace sluice::testing
