#include "lib/storage/stripe/stripe_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/storage/stripe/manifest.h"

namespace sluice {
namespace {

constexpr absl::string_view kWorkerPrefix = "worker-";
constexpr absl::string_view kMidLevelPrefix = "mla-";

bool IsAllowed(char c) {
  return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
}

absl::Status BadName(absl::string_view name, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat("file name \"", absl::CEscape(name), "\" ", reason));
}

// A folder of one of the workers of a level.
std::string FolderName(absl::string_view prefix, uint32_t number) {
  return absl::StrFormat("%s%04u", prefix, number);
}

// "worker-3" and "worker-+003" are not such names.
std::optional<uint32_t> ParseFolderName(absl::string_view prefix, std::string_view name) {
  uint32_t number = 0;
  const absl::string_view text(name.data(), name.size());
  if (text.substr(0, prefix.size()) != prefix) return std::nullopt;
  if (!absl::SimpleAtoi(text.substr(prefix.size()), &number) || number >= kMaxStripeWorkers) return std::nullopt;
  if (FolderName(prefix, number) != name) return std::nullopt;
  return number;
}

absl::StatusOr<std::string> LowerFileName(std::string_view file, uint32_t worker, absl::string_view part) {
  std::string name = absl::StrFormat("%s.w%04u.%s", std::string(file), worker, part);
  if (name.size() <= kMaxFileNameBytes) return name;
  return BadName(name.substr(0, 32), absl::StrCat("... has ", name.size(), " bytes at a level below; at most ",
                                                  kMaxFileNameBytes, ": give a shorter name"));
}

}  // namespace

absl::Status ValidateFileName(std::string_view name) {
  const absl::string_view text(name.data(), name.size());
  if (text.empty()) return absl::InvalidArgumentError("file name is empty");
  if (text.size() > kMaxFileNameBytes)
    return BadName(text.substr(0, 32), absl::StrCat("... has ", text.size(), " bytes; at most ", kMaxFileNameBytes));
  for (const char c : text) {
    if (c == '/') return BadName(text, "has a '/'; it must be one path component");
    if (!IsAllowed(c)) return BadName(text, "has a character outside of [A-Za-z0-9._-]");
  }
  if (text[0] == '.') return BadName(text, "begins with '.', which is for hidden and relative paths");
  if (text[0] == '-') return BadName(text, "begins with '-', which is for flags");
  return absl::OkStatus();
}

std::string WorkerFolderName(uint32_t worker) {
  return FolderName(kWorkerPrefix, worker);
}

std::optional<uint32_t> ParseWorkerFolderName(std::string_view name) {
  return ParseFolderName(kWorkerPrefix, name);
}

std::string MidLevelFolderName(uint32_t aggregator) {
  return FolderName(kMidLevelPrefix, aggregator);
}

std::optional<uint32_t> ParseMidLevelFolderName(std::string_view name) {
  return ParseFolderName(kMidLevelPrefix, name);
}

std::string StripeFileName(uint32_t replica) {
  return absl::StrCat("stripe-", replica);
}

absl::StatusOr<std::string> LowerStripeName(std::string_view file, uint32_t worker, uint32_t replica) {
  return LowerFileName(file, worker, absl::StrCat("s", replica));
}

absl::StatusOr<std::string> LowerManifestName(std::string_view file, uint32_t worker) {
  return LowerFileName(file, worker, absl::string_view(kManifestFileName.data(), kManifestFileName.size()));
}

std::optional<LowerName> ParseLowerName(std::string_view name) {
  const size_t part_dot = name.rfind('.');
  if (part_dot == std::string_view::npos || part_dot == 0) return std::nullopt;
  const size_t worker_dot = name.rfind('.', part_dot - 1);
  if (worker_dot == std::string_view::npos) return std::nullopt;
  const std::string_view worker = name.substr(worker_dot + 1, part_dot - worker_dot - 1);
  const std::string_view part = name.substr(part_dot + 1);
  LowerName lower{.file = std::string(name.substr(0, worker_dot))};
  if (!worker.starts_with('w') || !absl::SimpleAtoi(std::string(worker.substr(1)), &lower.worker)) return std::nullopt;
  if (part != kManifestFileName) {
    if (!part.starts_with('s') || !absl::SimpleAtoi(std::string(part.substr(1)), &lower.replica.emplace())) {
      return std::nullopt;
    }
  }
  const auto made = lower.replica.has_value() ? LowerStripeName(lower.file, lower.worker, *lower.replica)
                                              : LowerManifestName(lower.file, lower.worker);
  if (!made.ok() || *made != name) return std::nullopt;  // "data.w3.s0", "data.w0003.s+0"
  return lower;
}

bool IsPartOfFile(std::string_view name, std::string_view file) {
  for (auto lower = ParseLowerName(name); lower.has_value(); lower = ParseLowerName(lower->file)) {
    if (lower->file == file) return true;
  }
  return false;
}

}  // namespace sluice
