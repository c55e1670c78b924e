#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

// Sizes, rates and times as people write them in flags and config files. The grammar is that of tc(8), PARAMETERS;
// units are not case-sensitive. Every error is InvalidArgument and quotes the text.
namespace sluice {

// "32000", "32000b", "32k", "32kb", "32KiB" (1024 bytes), "1.5mb", "4gb". At least 0, whole bytes, at most 2^53.
absl::StatusOr<int64_t> ParseByteSize(std::string_view text);

// Bits per second: "100mbit" (1000-based), "1gbit", "10kbit", "1mibit" (1024-based), a plain number. Above 0. Bytes per
// second in tc's notation ("12mbps") are refused: most people who write them mean bits.
absl::StatusOr<double> ParseBitRate(std::string_view text);

// "100us", "1.5ms", "2s", "1m30s". At least 0, and not infinite.
absl::StatusOr<absl::Duration> ParseDuration(std::string_view text);

// The buffer of a switch port: bytes, or packets as in "100p". Exactly one of the two is above 0.
struct BufferSize {
  int64_t bytes = 0;
  int64_t packets = 0;
};
absl::StatusOr<BufferSize> ParseBufferSize(std::string_view text);

// Formats values for people: three significant digits and a unit ("32 KiB", "92.3 Mbit/s", "1.87 ms").
std::string FormatByteSize(int64_t bytes);
std::string FormatBitRate(double bits_per_second);
std::string FormatDuration(absl::Duration duration);  // call it as sluice::FormatDuration: absl has one, too

// Reads a text field of a config with one of the parsers above. An empty field keeps `value`; an error names the field.
template <class T, class Parser>
absl::Status ParseField(std::string_view field, std::string_view text, Parser parser, T& value) {
  if (text.empty()) return absl::OkStatus();
  auto parsed = parser(text);
  if (!parsed.ok())
    return absl::Status(parsed.status().code(), absl::StrCat(std::string(field), ": ", parsed.status().message()));
  value = *parsed;
  return absl::OkStatus();
}

}  // namespace sluice
