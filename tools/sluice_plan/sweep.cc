#include "tools/sluice_plan/sweep.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/cli/units.h"

namespace sluice {
namespace {

constexpr std::string_view kForm =
    "give NAME=FROM:TO or NAME=FROM:TO:STEP, as in buffer=16kb:1mb:x2 or workers=8:256:+8";

// A parameter that can be swept: the format of its values, and the field of Read to set.
struct Parameter {
  std::string_view name;
  std::string_view suffix;  // of FROM, if one name has two kinds of values
  bool whole;
  absl::StatusOr<double> (*parse)(std::string_view text);
  std::string (*format)(double value);
  void (*set)(Read& read, double value);
};

template <class T, absl::StatusOr<T> (*parse)(std::string_view)>
absl::StatusOr<double> AsDouble(std::string_view text) {
  const auto parsed = parse(text);
  if (!parsed.ok()) return parsed.status();
  return static_cast<double>(*parsed);
}

absl::StatusOr<double> ParseSeconds(std::string_view text) {
  const auto parsed = ParseDuration(text);
  if (!parsed.ok()) return parsed.status();
  return absl::ToDoubleSeconds(*parsed);
}

absl::StatusOr<double> ParseCount(std::string_view text) {
  int64_t count = 0;
  if (absl::SimpleAtoi(std::string(text), &count)) return static_cast<double>(count);
  return absl::InvalidArgumentError(absl::StrCat("\"", std::string(text), "\" is not a whole number"));
}

absl::StatusOr<double> ParsePackets(std::string_view text) {
  const auto parsed = ParseBufferSize(text);
  if (!parsed.ok()) return parsed.status();
  if (parsed->packets > 0) return static_cast<double>(parsed->packets);
  return absl::InvalidArgumentError(absl::StrCat("\"", std::string(text), "\" are not packets, as in 100p"));
}

std::string FormatBytes(double value) {
  return FormatByteSize(std::llround(value));
}
std::string FormatCount(double value) {
  return absl::StrCat(std::llround(value));
}
std::string FormatPackets(double value) {
  return absl::StrCat(std::llround(value), "p");
}
std::string FormatSeconds(double value) {
  return sluice::FormatDuration(absl::Seconds(value));
}

void SetBuffer(Read& read, double bytes) {
  read.profile.buffer_bytes = std::llround(bytes);
  read.profile.buffer_packets = 0;
}
void SetBufferPackets(Read& read, double packets) {
  read.profile.buffer_packets = std::llround(packets);
  read.profile.buffer_bytes = 0;
}

constexpr auto kParseBytes = AsDouble<int64_t, ParseByteSize>;
constexpr auto kParseRate = AsDouble<double, ParseBitRate>;
const Parameter kParameters[] = {
    {"workers", "", true, ParseCount, FormatCount,
     [](Read& read, double value) { read.workers = std::llround(value); }},
    {"buffer", "p", true, ParsePackets, FormatPackets, SetBufferPackets},
    {"buffer", "", true, kParseBytes, FormatBytes, SetBuffer},
    {"sru", "", true, kParseBytes, FormatBytes, [](Read& read, double value) { read.sru_bytes = std::llround(value); }},
    {"capacity", "", false, kParseRate, FormatBitRate,
     [](Read& read, double value) { read.profile.capacity_bytes_per_second = value / 8; }},
    {"rtt", "", false, ParseSeconds, FormatSeconds,
     [](Read& read, double value) { read.profile.propagation_rtt = absl::Seconds(value); }},
    {"timer_granularity", "", false, ParseSeconds, FormatSeconds,
     [](Read& read, double value) { read.profile.timer_granularity = absl::Seconds(value); }},
};

absl::Status Refuse(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("sweep: \"", std::string(text), "\" ", std::string(why)));
}

const Parameter* FindParameter(std::string_view name, const std::string& from) {
  for (const Parameter& parameter : kParameters) {
    if (parameter.name == name && (parameter.suffix.empty() || from.ends_with(parameter.suffix))) return &parameter;
  }
  return nullptr;
}

struct Step {
  bool multiplies = true;
  double size = 2;
};

absl::StatusOr<Step> ParseStep(const Parameter& parameter, const std::string& text) {
  if (text.starts_with('x')) {
    Step step;
    if (absl::SimpleAtod(text.substr(1), &step.size) && step.size > 1 && std::isfinite(step.size)) return step;
    return Refuse(text, "is not a step; what follows x must be above 1");
  }
  if (!text.starts_with('+')) return Refuse(text, "is not a step; give xF to multiply by F, or +D to add D");
  const auto size = parameter.parse(text.substr(1));
  if (!size.ok()) return Refuse(text, absl::StrCat("is not a step: ", size.status().message()));
  if (*size <= 0) return Refuse(text, "is not a step; what follows + must be above 0");
  return Step{.multiplies = false, .size = *size};
}

// Computes each value from the first, so that errors do not add up. A value slightly above `to` becomes `to`: 20 us
// added nine times may exceed 200 us.
absl::StatusOr<std::vector<double>> Values(const Parameter& parameter, double from, double to, const Step& step) {
  std::vector<double> values;
  for (size_t steps = 0; steps < kMaxSweepRows; ++steps) {
    const auto i = static_cast<double>(steps);
    double value = step.multiplies ? from * std::pow(step.size, i) : from + i * step.size;
    if (parameter.whole) value = std::round(value);
    if (value > to * (1 + 1e-9)) return values;
    if (!values.empty() && value == values.back()) continue;
    values.push_back(std::min(value, to));
  }
  return absl::InvalidArgumentError(absl::StrCat("sweep: more than ", kMaxSweepRows, " steps; take larger ones"));
}

}  // namespace

std::string_view SweptName(std::string_view text) {
  const size_t end = text.find('=');
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end);
}

absl::StatusOr<std::vector<SweepRow>> SizeUpSweep(std::string_view text, const Read& base) {
  const std::string_view name = SweptName(text);
  const std::vector<std::string> parts =
      name.empty() ? std::vector<std::string>() : absl::StrSplit(std::string(text.substr(name.size() + 1)), ':');
  if (parts.size() < 2 || parts.size() > 3) return Refuse(text, absl::StrCat("is not a sweep; ", std::string(kForm)));
  const Parameter* parameter = FindParameter(name, parts[0]);
  if (parameter == nullptr) {
    return Refuse(name, "cannot be swept; there are workers, buffer, sru, capacity, rtt and timer_granularity");
  }
  const auto from = parameter->parse(parts[0]);
  const auto to = parameter->parse(parts[1]);
  if (!from.ok()) return Refuse(text, absl::StrCat("begins wrongly: ", from.status().message()));
  if (!to.ok()) return Refuse(text, absl::StrCat("ends wrongly: ", to.status().message()));
  if (*from <= 0) return Refuse(parts[0], "is no beginning of a sweep; it must be above 0");
  if (*to < *from) return Refuse(text, absl::StrCat("ends before it begins; ", std::string(kForm)));
  absl::StatusOr<Step> step = Step{.multiplies = name != "workers", .size = name == "workers" ? 1.0 : 2.0};
  if (parts.size() == 3) step = ParseStep(*parameter, parts[2]);
  if (!step.ok()) return step.status();
  const auto values = Values(*parameter, *from, *to, *step);
  if (!values.ok()) return values.status();
  std::vector<SweepRow> rows;
  Read read = base;
  for (const double value : *values) {
    parameter->set(read, value);
    auto sizing = SizeUp(read);
    if (!sizing.ok()) return sizing.status();
    rows.push_back({.value = parameter->format(value), .sizing = *std::move(sizing)});
  }
  return rows;
}

}  // namespace sluice
