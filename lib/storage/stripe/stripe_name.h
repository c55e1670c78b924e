#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// How a striped file is named on disk: DIR/worker-0003/<file>/{manifest,stripe-0,stripe-1,...}. In an aggregation tree
// every mid-level aggregator has a DIR of its own for its workers: DIR/mla-0001/worker-0003/..., and so on downwards.
namespace sluice {

inline constexpr size_t kMaxFileNameBytes = 200;  // leaves room for a prefix within the 255 of Linux

// A striped file's name is one path component: 1 to 200 bytes of [A-Za-z0-9._-], the first a letter, a digit or '_'.
// InvalidArgument says what is wrong. Nothing else may become part of a path.
absl::Status ValidateFileName(std::string_view name);

std::string WorkerFolderName(uint32_t worker);                         // "worker-0003"
std::optional<uint32_t> ParseWorkerFolderName(std::string_view name);  // exactly what WorkerFolderName makes
std::string StripeFileName(uint32_t replica);                          // "stripe-0"
inline constexpr std::string_view kManifestFileName = "manifest";

std::string MidLevelFolderName(uint32_t aggregator);                     // "mla-0001"
std::optional<uint32_t> ParseMidLevelFolderName(std::string_view name);  // exactly what MidLevelFolderName makes

// What one level of an aggregation tree keeps at worker 3 is, at the level below, a file of its own: stripe 0 of "data"
// is the file "data.w0003.s0", and the manifest of "data" is "data.w0003.manifest". The worker is part of the name, so
// that a list of workers in the wrong order is found out. InvalidArgument: the name would be too long.
absl::StatusOr<std::string> LowerStripeName(std::string_view file, uint32_t worker, uint32_t replica);
absl::StatusOr<std::string> LowerManifestName(std::string_view file, uint32_t worker);
struct LowerName {
  std::string file;                 // of the level above
  uint32_t worker = 0;              // of that level
  std::optional<uint32_t> replica;  // none: it is the manifest
};
std::optional<LowerName> ParseLowerName(std::string_view name);  // exactly what the two above make
// Whether `name` is what some level below keeps of `file`.
bool IsPartOfFile(std::string_view name, std::string_view file);

}  // namespace sluice
