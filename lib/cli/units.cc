#include "lib/cli/units.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"

namespace sluice {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKibi = 1024;
constexpr Unit kByteUnits[] = {{"", 1},
                               {"b", 1},
                               {"k", kKibi},
                               {"kb", kKibi},
                               {"kib", kKibi},
                               {"m", kKibi* kKibi},
                               {"mb", kKibi* kKibi},
                               {"mib", kKibi* kKibi},
                               {"g", kKibi* kKibi* kKibi},
                               {"gb", kKibi* kKibi* kKibi},
                               {"gib", kKibi* kKibi* kKibi}};
constexpr Unit kBitRateUnits[] = {{"", 1},
                                  {"bit", 1},
                                  {"kbit", 1e3},
                                  {"mbit", 1e6},
                                  {"gbit", 1e9},
                                  {"tbit", 1e12},
                                  {"kibit", kKibi},
                                  {"mibit", kKibi* kKibi},
                                  {"gibit", kKibi* kKibi* kKibi}};
constexpr std::string_view kByteRateUnits[] = {"bps", "kbps", "mbps", "gbps", "tbps"};

// Whole numbers up to here are exact in a double: 8 PiB, and more than any rate.
constexpr double kLargest = 9007199254740992.0;  // 2^53

struct Quantity {
  double number = 0;
  std::string_view unit;
};

// Accepts only plain decimals. strtod and SimpleAtod would also accept "inf", "nan", "0x1p3" and exponents.
bool SplitQuantity(std::string_view text, Quantity& quantity) {
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  quantity.unit = text.substr(end);
  return absl::SimpleAtod(std::string(text.substr(0, end)), &quantity.number);
}

// absl's EqualsIgnoreCase takes absl::string_view, which is not std's in packages built for C++14.
bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

const Unit* FindUnit(absl::Span<const Unit> units, std::string_view name) {
  for (const Unit& unit : units) {
    if (EqualsIgnoreCase(unit.name, name)) return &unit;
  }
  return nullptr;
}

absl::Status Refuse(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("\"", std::string(text), "\" ", std::string(why)));
}

// Formats a positive number below about 1000 with three significant digits, without trailing zeros or an exponent.
std::string FormatScaled(double value, std::string_view unit) {
  const int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  std::string number = absl::StrFormat("%.*f", decimals, value);
  if (decimals > 0) {
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
  }
  return number.append(" ").append(unit);
}

std::string FormatWithPrefix(double value, double base, absl::Span<const std::string_view> units) {
  size_t i = 0;
  // 999.5 would print as 1000 of the smaller unit.
  while (i + 1 < units.size() && std::abs(value) >= base - 0.5) {
    value /= base;
    ++i;
  }
  return value < 0 ? absl::StrCat("-", FormatScaled(-value, units[i])) : FormatScaled(value, units[i]);
}

}  // namespace

absl::StatusOr<int64_t> ParseByteSize(std::string_view text) {
  Quantity quantity;
  const Unit* unit = SplitQuantity(text, quantity) ? FindUnit(kByteUnits, quantity.unit) : nullptr;
  if (unit == nullptr) return Refuse(text, "is not a size; give bytes, or one like 32kb (1024 bytes each), 4mb or 1gb");
  const double bytes = quantity.number * unit->factor;
  if (bytes > kLargest) return Refuse(text, "is too large a size; the most is 2^53 bytes");
  if (bytes != std::floor(bytes)) return Refuse(text, "is not a whole number of bytes");
  return static_cast<int64_t>(bytes);
}

absl::StatusOr<double> ParseBitRate(std::string_view text) {
  Quantity quantity;
  const bool is_number = SplitQuantity(text, quantity);
  for (const std::string_view unit : kByteRateUnits) {
    if (is_number && EqualsIgnoreCase(unit, quantity.unit)) {
      return Refuse(text, "is ambiguous: tc takes it for bytes per second; give bits per second, like 100mbit");
    }
  }
  const Unit* unit = is_number ? FindUnit(kBitRateUnits, quantity.unit) : nullptr;
  if (unit == nullptr) return Refuse(text, "is not a rate; give bits per second, or one like 100mbit or 1gbit");
  const double rate = quantity.number * unit->factor;
  if (rate <= 0) return Refuse(text, "is not a rate above 0");
  if (rate > kLargest) return Refuse(text, "is too large a rate; the most is 2^53 bits per second");
  return rate;
}

absl::StatusOr<absl::Duration> ParseDuration(std::string_view text) {
  absl::Duration duration;
  if (!absl::ParseDuration(std::string(text), &duration)) {
    return Refuse(text, "is not a duration; give one with a unit, like 100us, 20ms, 1.5s or 1m");
  }
  if (duration < absl::ZeroDuration()) return Refuse(text, "is a negative duration");
  if (duration == absl::InfiniteDuration()) return Refuse(text, "is an infinite duration; give a finite one");
  return duration;
}

absl::StatusOr<BufferSize> ParseBufferSize(std::string_view text) {
  BufferSize size;
  Quantity quantity;
  if (SplitQuantity(text, quantity) && EqualsIgnoreCase(quantity.unit, "p")) {
    if (!absl::SimpleAtoi(std::string(text.substr(0, text.size() - 1)), &size.packets)) {
      return Refuse(text, "is not a whole number of packets");
    }
  } else {
    const absl::StatusOr<int64_t> bytes = ParseByteSize(text);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(bytes.status().message(), "; or packets, like 100p"));
    }
    size.bytes = *bytes;
  }
  if (size.bytes == 0 && size.packets == 0) return Refuse(text, "is no buffer; give at least one byte or packet");
  return size;
}

std::string FormatByteSize(int64_t bytes) {
  static constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  return FormatWithPrefix(static_cast<double>(bytes), kKibi, kUnits);
}

std::string FormatBitRate(double bits_per_second) {
  static constexpr std::string_view kUnits[] = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
  return FormatWithPrefix(bits_per_second, 1000, kUnits);
}

std::string FormatDuration(absl::Duration duration) {
  if (absl::AbsDuration(duration) >= absl::Minutes(1))
    return absl::FormatDuration(absl::Trunc(duration, absl::Seconds(1)));
  static constexpr std::string_view kUnits[] = {"ns", "us", "ms", "s"};
  return FormatWithPrefix(absl::ToDoubleNanoseconds(duration), 1000, kUnits);
}

}  // namespace sluice
