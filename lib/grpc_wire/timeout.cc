#include "lib/grpc_wire/timeout.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

struct Unit {
  char name;
  absl::Duration length;
};
constexpr size_t kMaxDigits = 8;
constexpr int64_t kMaxCount = 99'999'999;

std::array<Unit, 6> Units() {
  return {{{'n', absl::Nanoseconds(1)},
           {'u', absl::Microseconds(1)},
           {'m', absl::Milliseconds(1)},
           {'S', absl::Seconds(1)},
           {'M', absl::Minutes(1)},
           {'H', absl::Hours(1)}}};
}

}  // namespace

std::string FormatTimeout(absl::Duration timeout) {
  timeout = std::max(timeout, absl::Nanoseconds(1));
  for (const auto& [name, length] : Units()) {
    if (timeout > kMaxCount * length) continue;
    return absl::StrCat(absl::Ceil(timeout, length) / length, std::string(1, name));
  }
  return absl::StrCat(kMaxCount, "H");
}

std::optional<absl::Duration> ParseTimeout(absl::string_view text) {
  if (text.size() < 2 || text.size() > kMaxDigits + 1) return std::nullopt;
  const absl::string_view digits = text.substr(0, text.size() - 1);
  int64_t count = 0;
  if (!std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) || !absl::SimpleAtoi(digits, &count)) {
    return std::nullopt;
  }
  for (const auto& [name, length] : Units()) {
    if (name == text.back()) return count * length;
  }
  return std::nullopt;
}

}  // namespace sluice
