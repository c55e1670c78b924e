#include "aggregator/worker_list.h"

#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/stripe/manifest.h"

namespace sluice {
namespace {

// Of a pattern: far more than a name has (RFC 1035: 255), and as many times as there are workers still little memory.
constexpr size_t kMaxPatternBytes = 512;

// What stands between the braces.
struct Range {
  uint32_t first = 0;
  std::optional<uint32_t> last;
};

absl::Status Refuse(std::string_view entry, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("workers: \"", std::string(entry), "\" ", std::string(why)));
}

// Digits alone: SimpleAtoi would also take a sign and spaces. "007" is the name of another worker than "7".
std::optional<uint32_t> ParseOrdinal(std::string_view text) {
  uint32_t ordinal = 0;
  const bool digits = text.find_first_not_of("0123456789") == std::string_view::npos;
  const bool canonical = text == "0" || !text.starts_with('0');
  if (!digits || !canonical || !absl::SimpleAtoi(std::string(text), &ordinal)) return std::nullopt;
  return ordinal < kMaxStripeWorkers ? std::optional(ordinal) : std::nullopt;
}

absl::StatusOr<Range> ParseRange(std::string_view entry, std::string_view text) {
  const std::string most = absl::StrCat(kMaxStripeWorkers - 1);
  const std::string expected =
      absl::StrCat("has no range {FIRST..LAST} or {FIRST..} of numbers from 0 to ", most, " without leading zeros");
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) return Refuse(entry, expected);
  const std::optional<uint32_t> first = ParseOrdinal(text.substr(0, dots));
  if (!first.has_value()) return Refuse(entry, expected);
  const std::string_view end = text.substr(dots + 2);
  if (end.empty()) return Range{.first = *first};
  const std::optional<uint32_t> last = ParseOrdinal(end);
  if (!last.has_value()) return Refuse(entry, expected);
  if (*last < *first) return Refuse(entry, "has a range that ends before it begins");
  return Range{.first = *first, .last = last};
}

absl::Status AddEntry(const std::string& entry, bool last_entry, WorkerList& list) {
  const size_t open = entry.find('{');
  const size_t close = entry.find('}');
  if (open == std::string::npos && close == std::string::npos) {
    list.fixed.push_back(entry);
    return absl::OkStatus();
  }
  if (open == std::string::npos || close == std::string::npos || close < open ||
      entry.find_first_of("{}", close + 1) != std::string::npos || entry.find('{', open + 1) < close) {
    return Refuse(entry, "has braces that are not one pair");
  }
  if (entry.size() > kMaxPatternBytes) {
    return Refuse(entry.substr(0, 32),
                  absl::StrCat("... has ", entry.size(), " bytes; a pattern has at most ", kMaxPatternBytes));
  }
  const absl::StatusOr<Range> range = ParseRange(entry, std::string_view(entry).substr(open + 1, close - open - 1));
  if (!range.ok()) return range.status();
  const OpenRange pattern{.before = entry.substr(0, open), .first = range->first, .after = entry.substr(close + 1)};
  if (!range->last.has_value()) {
    if (!last_entry) return Refuse(entry, "is open and not the last entry; only that one may be");
    list.open = pattern;
    return absl::OkStatus();
  }
  if (list.fixed.size() + (*range->last - range->first) >= kMaxStripeWorkers) {
    return Refuse(entry, absl::StrCat("makes more than ", kMaxStripeWorkers, " workers"));
  }
  for (uint32_t i = 0; i <= *range->last - range->first; ++i) list.fixed.push_back(pattern.Address(i));
  return absl::OkStatus();
}

}  // namespace

std::string OpenRange::Address(uint32_t offset) const {
  return absl::StrCat(before, first + offset, after);
}

std::vector<std::string> WorkerList::Addresses(uint32_t found) const {
  std::vector<std::string> addresses = fixed;
  for (uint32_t i = 0; i < found; ++i) addresses.push_back(open->Address(i));
  return addresses;
}

absl::StatusOr<WorkerList> ParseWorkerList(const std::vector<std::string>& entries) {
  WorkerList list;
  for (size_t i = 0; i < entries.size(); ++i) {
    absl::Status added = AddEntry(entries[i], i + 1 == entries.size(), list);
    if (!added.ok()) return added;
  }
  return list;
}

}  // namespace sluice
