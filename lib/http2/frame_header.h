#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace sluice {

// The header of a frame (RFC 9113, section 4.1).
struct FrameHeader {
  static constexpr size_t kBytes = 9;
  // Types.
  static constexpr uint8_t kHeaders = 1;
  static constexpr uint8_t kPriority = 2;
  static constexpr uint8_t kRstStream = 3;
  static constexpr uint8_t kSettings = 4;
  static constexpr uint8_t kWindowUpdate = 8;
  static constexpr uint8_t kContinuation = 9;
  // Flags.
  static constexpr uint8_t kAck = 0x1;
  static constexpr uint8_t kEndHeaders = 0x4;
  static constexpr uint8_t kPadded = 0x8;
  static constexpr uint8_t kHasPriority = 0x20;

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
