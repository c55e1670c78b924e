#include "lib/link/worker_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/net/host_port.h"
#include "lib/net/worker_address.h"

namespace sluice {
namespace {

constexpr absl::string_view kEachAddress = "dns+";
// Far more than the longest name (RFC 1035: 255 bytes), and little memory even for the maximum number of workers.
constexpr size_t kMaxEntryBytes = 512;
constexpr size_t kQuotedBytes = 64;

// The contents of the braces.
struct Range {
  uint32_t first = 0;
  std::optional<uint32_t> last;
};

absl::Status Refuse(absl::string_view why) {
  return absl::InvalidArgumentError(why);
}

// Accept digits only: SimpleAtoi also accepts a sign and spaces. "007" and "7" name different workers.
std::optional<uint32_t> ParseOrdinal(absl::string_view text) {
  uint32_t ordinal = 0;
  const bool digits = text.find_first_not_of("0123456789") == absl::string_view::npos;
  const bool canonical = text == "0" || !absl::StartsWith(text, "0");
  if (!digits || !canonical || !absl::SimpleAtoi(text, &ordinal)) return std::nullopt;
  return ordinal < kMaxListedWorkers ? std::optional(ordinal) : std::nullopt;
}

absl::StatusOr<Range> ParseRange(absl::string_view text) {
  const std::string expected = absl::StrCat("has no range {FIRST..LAST} or {FIRST..} of numbers from 0 to ",
                                            kMaxListedWorkers - 1, " without leading zeros");
  const size_t dots = text.find("..");
  if (dots == absl::string_view::npos) return Refuse(expected);
  const std::optional<uint32_t> first = ParseOrdinal(text.substr(0, dots));
  if (!first.has_value()) return Refuse(expected);
  const absl::string_view end = text.substr(dots + 2);
  if (end.empty()) return Range{.first = *first, .last = std::nullopt};
  const std::optional<uint32_t> last = ParseOrdinal(end);
  if (!last.has_value()) return Refuse(expected);
  if (*last < *first) return Refuse("has a range that ends before it begins");
  return Range{.first = *first, .last = last};
}

// Returns the host to look up, or nothing: other forms of an address need no look-up, or are not host:port.
std::optional<std::string> NameIn(const std::string& address) {
  const absl::StatusOr<WorkerTarget> target = ParseWorkerTarget(address);
  if (!target.ok() || !target->addresses.empty() || !ParseHostPort(address).ok()) return std::nullopt;
  return target->host;
}

absl::Status CheckOpen(const OpenRange& open) {
  const std::optional<std::string> name = NameIn(open.Address(0));
  if (!name.has_value()) {
    return Refuse(absl::StrCat("is open, and the first of it, \"", open.Address(0),
                               "\", is not NAME:PORT with a name to look up and a port between 1 and 65535"));
  }
  if (NameIn(open.Address(1)) != name) return absl::OkStatus();
  return Refuse("is open in the port; only a range of names may be, since they are looked up");
}

absl::Status AddRange(const OpenRange& pattern, const Range& range, bool last_entry, WorkerList& list) {
  if (!range.last.has_value()) {
    if (!last_entry) return Refuse("is open and not the last entry; only that one may be");
    list.open = pattern;
    return CheckOpen(pattern);
  }
  const uint32_t last = *range.last - range.first;
  for (uint32_t i = 0; i <= last; ++i) {
    list.fixed.push_back(pattern.Address(i));
    // Each of them: "ipv{0..9}:7000" has two that begin like another form of an address.
    const absl::Status valid = ValidateWorkerAddress(list.fixed.back());
    if (!valid.ok()) return Refuse(absl::StrCat("stands for a worker that cannot be: ", valid.message()));
  }
  return absl::OkStatus();
}

// Adds an entry that has braces.
absl::Status AddPattern(const std::string& entry, bool last_entry, WorkerList& list) {
  const size_t open = entry.find('{');
  const size_t close = entry.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open ||
      entry.find_first_of("{}", close + 1) != std::string::npos || entry.find('{', open + 1) < close) {
    return Refuse("has braces that are not one pair");
  }
  const absl::StatusOr<Range> range = ParseRange(absl::string_view(entry).substr(open + 1, close - open - 1));
  if (!range.ok()) return range.status();
  const OpenRange pattern{.before = entry.substr(0, open), .first = range->first, .after = entry.substr(close + 1)};
  return AddRange(pattern, *range, last_entry, list);
}

absl::Status AddName(absl::string_view name, WorkerList& list) {
  list.names.emplace_back(name);
  if (!absl::StrContains(name, '{') && NameIn(list.names.back()).has_value()) return absl::OkStatus();
  return Refuse("is not dns+NAME:PORT with a name to look up and a port between 1 and 65535");
}

absl::Status AddEntry(const std::string& entry, bool last_entry, WorkerList& list) {
  if (entry.size() > kMaxEntryBytes) {
    return Refuse(absl::StrCat("... has ", entry.size(), " bytes; an entry has at most ", kMaxEntryBytes));
  }
  absl::string_view name = entry;
  if (absl::ConsumePrefix(&name, kEachAddress)) return AddName(name, list);
  if (entry.find_first_of("{}") != std::string::npos) return AddPattern(entry, last_entry, list);
  list.fixed.push_back(entry);
  const absl::Status valid = ValidateWorkerAddress(entry);
  // Remove the beginning, since it repeats the beginning of all other errors here.
  absl::string_view why = valid.message();
  absl::ConsumePrefix(&why, absl::StrCat("worker address \"", entry, "\" "));
  return valid.ok() ? valid : Refuse(why);
}

}  // namespace

std::string OpenRange::Address(uint32_t offset) const {
  return absl::StrCat(before, first + offset, after);
}

std::vector<std::string> WorkerList::Addresses(uint32_t found, const std::vector<std::string>& members) const {
  std::vector<std::string> addresses = fixed;
  for (uint32_t i = 0; i < found; ++i) addresses.push_back(open->Address(i));
  addresses.insert(addresses.end(), members.begin(), members.end());
  if (addresses.size() > kMaxListedWorkers) addresses.resize(kMaxListedWorkers);
  return addresses;
}

absl::StatusOr<WorkerList> ParseWorkerList(const std::vector<std::string>& entries) {
  if (entries.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("workers lists 0 addresses; it must list 1 to ", kMaxListedWorkers));
  }
  WorkerList list;
  for (size_t i = 0; i < entries.size(); ++i) {
    absl::Status added = AddEntry(entries[i], i + 1 == entries.size(), list);
    if (added.ok() && list.fixed.size() > kMaxListedWorkers) {
      added = Refuse(absl::StrCat("makes more than ", kMaxListedWorkers, " workers"));
    }
    if (added.ok()) continue;
    const absl::string_view quoted = entries[i].size() > kMaxEntryBytes
                                         ? absl::string_view(entries[i]).substr(0, kQuotedBytes)
                                         : absl::string_view(entries[i]);
    return absl::InvalidArgumentError(absl::StrCat("workers[", i, "]: \"", quoted, "\" ", added.message()));
  }
  return list;
}

absl::StatusOr<std::vector<std::string>> ParseFixedWorkers(const std::vector<std::string>& entries) {
  absl::StatusOr<WorkerList> list = ParseWorkerList(entries);
  if (!list.ok()) return list.status();
  if (!list->NeedsLookUps()) return std::move(list->fixed);
  const std::string entry = list->names.empty() ? entries.back() : absl::StrCat(kEachAddress, list->names.front());
  return absl::InvalidArgumentError(
      absl::StrCat("workers: \"", entry, "\" has to be looked up; give addresses, or ranges with both ends"));
}

}  // namespace sluice
