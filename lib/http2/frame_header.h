#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace sluice {

// The header of a frame (RFC 9113, section 4.1). nghttp2 names the types and the flags.
struct FrameHeader {
  static constexpr size_t kBytes = 9;

  uint32_t size = 0;  // of the payload
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;

  // `bytes` are at least kBytes.
  static FrameHeader Parse(absl::string_view bytes) {
    const auto number = [bytes](size_t at, size_t size) {
      uint32_t value = 0;
      for (const char byte : bytes.substr(at, size)) value = value << 8 | static_cast<uint8_t>(byte);
      return value;
    };
    return {.size = number(0, 3),
            .type = static_cast<uint8_t>(bytes[3]),
            .flags = static_cast<uint8_t>(bytes[4]),
            .stream = number(5, 4) & 0x7fffffff};
  }
};

}  // namespace sluice
