#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

// Checks an invariant of a fuzzer; a violation is a finding. Unlike assert, it is active in every build.
#define FUZZ_CHECK(condition)           \
  do {                                  \
    if (!(condition)) __builtin_trap(); \
  } while (false)

namespace sluice {

// Splits a fuzzer's input. After the end of the input, numbers are 0 and strings are empty.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  // Takes two bytes. Covers all small numbers, and larger ones of every size and sign.
  int64_t Int64() {
    const uint64_t digits = Byte();
    const uint8_t shape = Byte();
    const uint64_t number = digits << shape % 64;
    return static_cast<int64_t>(shape & 64 ? ~number : number);
  }
  // Takes eight bytes. Covers all values, including NaN and infinity.
  double Double() {
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | Byte();
    double number;
    std::memcpy(&number, &bits, sizeof(number));
    return number;
  }
  absl::string_view Take(size_t size) {
    const absl::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }

 private:
  absl::string_view rest_;
};

}  // namespace sluice
