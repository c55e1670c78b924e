#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace sluice::testbed {

// The request of byte_load to byte_server: how many bytes to send, after how long, in the byte order of the host. It is
// as large as a small request of a real protocol.
struct ByteRequest {
  uint32_t response_bytes = 0;
  uint32_t think_us = 0;
  std::array<char, 92> padding{};
};

// The byte at this place of a response of so many bytes. Places that are one packet or one window apart differ.
inline char ByteAt(uint32_t response_bytes, size_t place) {
  return static_cast<char>((place * 2654435761U + response_bytes) >> 13);
}

// The place of the first wrong byte of a whole response; nothing if all are right.
inline std::optional<size_t> FirstWrongByte(std::string_view response) {
  for (size_t i = 0; i < response.size(); ++i) {
    if (response[i] != ByteAt(static_cast<uint32_t>(response.size()), i)) return i;
  }
  return std::nullopt;
}

}  // namespace sluice::testbed
