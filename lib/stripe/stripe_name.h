#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

// How a striped file is named on disk: DIR/worker-0003/<file>/{manifest,stripe-0,stripe-1,...}.
namespace sluice {

inline constexpr size_t kMaxFileNameBytes = 200;  // leaves room for a prefix within the 255 of Linux

// A striped file's name is one path component: 1 to 200 bytes of [A-Za-z0-9._-], the first a letter, a digit or '_'.
// InvalidArgument says what is wrong. Nothing else may become part of a path.
absl::Status ValidateFileName(std::string_view name);

std::string WorkerFolderName(uint32_t worker);                         // "worker-0003"
std::optional<uint32_t> ParseWorkerFolderName(std::string_view name);  // exactly what WorkerFolderName makes
std::string StripeFileName(uint32_t replica);                          // "stripe-0"
inline constexpr std::string_view kManifestFileName = "manifest";

}  // namespace sluice
