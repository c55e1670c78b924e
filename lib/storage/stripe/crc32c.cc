#include "lib/storage/stripe/crc32c.h"

#include <algorithm>

#include <isa-l/crc.h>

namespace sluice {
namespace {

constexpr size_t kMaxCallBytes = size_t{1} << 30;  // ISA-L takes the length as an int

}  // namespace

uint32_t Crc32c(std::string_view data, uint32_t initial) {
  uint32_t state = ~initial;  // ISA-L leaves the RFC's inversions to its caller
  while (!data.empty()) {
    const std::string_view part = data.substr(0, kMaxCallBytes);
    // ISA-L's prototype lacks the const, although it only reads.
    auto* bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(part.data()));
    state = crc32_iscsi(bytes, static_cast<int>(part.size()), state);
    data.remove_prefix(part.size());
  }
  return ~state;
}

}  // namespace sluice
