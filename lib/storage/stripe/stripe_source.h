#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

// The stripes of files at one level, as stored on disk: over workers (StripeStore) or over mid-level aggregators
// (TreeStore). All methods return the errors of StripeStore.
class StripeSource {
 public:
  virtual ~StripeSource() = default;

  virtual absl::StatusOr<std::vector<uint32_t>> Workers() const = 0;
  virtual absl::StatusOr<std::vector<std::string>> Files(uint32_t worker) const = 0;
  virtual std::string FolderName(uint32_t worker) const = 0;
  virtual absl::Status Read(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset, uint32_t length,
                            std::string* out) const = 0;
  virtual absl::StatusOr<uint64_t> StripeBytes(uint32_t worker, std::string_view file, uint32_t replica) const = 0;
  virtual absl::StatusOr<uint64_t> ReadManifest(uint32_t worker, std::string_view file, uint64_t offset,
                                                uint32_t length, std::string* out) const = 0;
};

// Reads the whole manifest as stored. Returns DataLoss if it exceeds the maximum size.
absl::StatusOr<std::string> ReadWholeManifest(const StripeSource& source, uint32_t worker, const std::string& file);

}  // namespace sluice
