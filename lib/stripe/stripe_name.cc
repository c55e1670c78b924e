#include "lib/stripe/stripe_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/stripe/manifest.h"

namespace sluice {
namespace {

constexpr absl::string_view kWorkerPrefix = "worker-";

bool IsAllowed(char c) {
  return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
}

absl::Status BadName(absl::string_view name, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat("file name \"", absl::CEscape(name), "\" ", reason));
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
  return absl::StrFormat("%s%04u", kWorkerPrefix, worker);
}

std::optional<uint32_t> ParseWorkerFolderName(std::string_view name) {
  uint32_t worker = 0;
  absl::string_view text(name.data(), name.size());
  if (text.substr(0, kWorkerPrefix.size()) != kWorkerPrefix) return std::nullopt;
  if (!absl::SimpleAtoi(text.substr(kWorkerPrefix.size()), &worker) || worker >= kMaxStripeWorkers) return std::nullopt;
  if (WorkerFolderName(worker) != name) return std::nullopt;  // "worker-3", "worker-+003"
  return worker;
}

std::string StripeFileName(uint32_t replica) {
  return absl::StrCat("stripe-", replica);
}

}  // namespace sluice
