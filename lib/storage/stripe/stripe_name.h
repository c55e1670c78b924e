#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// The names of a striped file on disk: DIR/worker-0003/<file>/{manifest,stripe-0,stripe-1,...}. In an aggregation tree,
// every mid-level aggregator has its own DIR for its workers: DIR/mla-0001/worker-0003/..., and so on downwards.
namespace sluice {

inline constexpr size_t kMaxFileNameBytes = 200;  // leaves room for a prefix within the 255 of Linux

// A striped file's name is one path component: 1 to 200 bytes of [A-Za-z0-9._-], the first a letter, a digit or '_'.
// Returns InvalidArgument with the reason otherwise. No other name may become part of a path.
absl::Status ValidateFileName(std::string_view name);

std::string WorkerFolderName(uint32_t worker);                         // "worker-0003"
std::optional<uint32_t> ParseWorkerFolderName(std::string_view name);  // accepts exactly the names of WorkerFolderName
std::string StripeFileName(uint32_t replica);                          // "stripe-0"
inline constexpr std::string_view kManifestFileName = "manifest";

std::string MidLevelFolderName(uint32_t aggregator);  // "mla-0001"
// Accepts exactly the names of MidLevelFolderName.
std::optional<uint32_t> ParseMidLevelFolderName(std::string_view name);

// In an aggregation tree, the parts of a file at worker 3 are separate files at the level below: stripe 0 of "data" is
// the file "data.w0003.s0", and the manifest of "data" is "data.w0003.manifest". The name contains the worker, so a
// list of workers in the wrong order is detected. Returns InvalidArgument if the name would be too long.
absl::StatusOr<std::string> LowerStripeName(std::string_view file, uint32_t worker, uint32_t replica);
absl::StatusOr<std::string> LowerManifestName(std::string_view file, uint32_t worker);
struct LowerName {
  std::string file;                 // the file of the level above
  uint32_t worker = 0;              // the worker of that level
  std::optional<uint32_t> replica;  // empty for the manifest
};
std::optional<LowerName> ParseLowerName(std::string_view name);  // accepts exactly the names of the two functions above
// Returns true if some level below stores a part of `file` under `name`.
bool IsPartOfFile(std::string_view name, std::string_view file);

}  // namespace sluice
