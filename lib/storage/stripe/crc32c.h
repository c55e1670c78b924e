#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

// CRC32C (Castagnoli) as in RFC 3720, appendix B.4. Pass the checksum of a as `initial` to extend it: Crc32c(b,
// Crc32c(a)) is the checksum of a followed by b.
uint32_t Crc32c(std::string_view data, uint32_t initial = 0);

}  // namespace sluice
