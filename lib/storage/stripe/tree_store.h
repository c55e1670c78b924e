#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/storage/stripe/stripe_layout.h"
#include "lib/storage/stripe/stripe_source.h"

namespace sluice {

// Files striped over mid-level aggregators, read from the aggregators' folders. It returns the responses of that
// level's aggregators, from the first replica of everything below. Used by checks. Not thread-safe: it caches
// manifests.
class TreeStore final : public StripeSource {
 public:
  // Returns true if a folder has folders of mid-level aggregators.
  static bool IsTree(const std::string& root);
  // Opens a tree if the folder has such folders, otherwise the store of its workers.
  static absl::StatusOr<std::unique_ptr<StripeSource>> Open(const std::string& root);

  absl::StatusOr<std::vector<uint32_t>> Workers() const override;
  absl::StatusOr<std::vector<std::string>> Files(uint32_t worker) const override;
  std::string FolderName(uint32_t worker) const override;
  absl::Status Read(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset, uint32_t length,
                    std::string* out) const override;
  absl::StatusOr<uint64_t> StripeBytes(uint32_t worker, std::string_view file, uint32_t replica) const override;
  absl::StatusOr<uint64_t> ReadManifest(uint32_t worker, std::string_view file, uint64_t offset, uint32_t length,
                                        std::string* out) const override;

 private:
  // A file of the level below, by name, with its layout there.
  struct LowerFile {
    const StripeSource* source = nullptr;
    std::string name;
    std::shared_ptr<const StripeLayout> layout;
  };

  explicit TreeStore(std::map<uint32_t, std::unique_ptr<StripeSource>> below) : below_(std::move(below)) {}
  absl::StatusOr<LowerFile> Find(uint32_t worker, const absl::StatusOr<std::string>& name) const;
  static absl::Status ReadLower(const LowerFile& file, uint64_t offset, uint32_t length, std::string* out);

  const std::map<uint32_t, std::unique_ptr<StripeSource>> below_;
  mutable std::map<std::string, LowerFile> found_;  // by name, which contains the worker
};

}  // namespace sluice
