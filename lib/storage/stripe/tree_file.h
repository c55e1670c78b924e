#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/storage/stripe/manifest_builder.h"
#include "lib/storage/stripe/striping_file.h"

namespace sluice {

// A file over mid-level aggregators. Each of its stripes, and its manifest at each aggregator, is a file of the level
// below (see stripe_name.h). Levels therefore do not depend on each other. Not thread-safe.
class TreeFile final : public StripingFile {
 public:
  static absl::StatusOr<std::unique_ptr<StripingFile>> Create(const Spec& spec);
  ~TreeFile() override;

  absl::Status Append(std::string_view data) override;
  absl::Status Finish(uint32_t upper_manifest_crc32c) override;
  absl::Status Prepare(const std::string& top, std::vector<PublicationStep>& steps) override;
  absl::Status Publish(const std::function<void()>& on_step) override;
  void Keep() override;
  const v1::Manifest& manifest() const override { return builder_.manifest(); }

 private:
  explicit TreeFile(const Spec& spec);
  absl::Status Make(const Spec& spec);
  absl::Status MakeLower(const Spec& spec, uint32_t aggregator, const absl::StatusOr<std::string>& name);
  StripingFile& stripe(uint32_t aggregator, uint32_t replica) { return *lower_[aggregator * files_each_ + replica]; }
  bool IsManifest(size_t i) const { return i % files_each_ == files_each_ - 1; }
  StripingFile& manifest_at(uint32_t aggregator) { return *lower_[(aggregator + 1) * files_each_ - 1]; }

  ManifestBuilder builder_;
  const uint64_t max_srus_;
  const size_t files_each_;  // files of one aggregator: its stripes, then its manifest
  std::vector<std::unique_ptr<StripingFile>> lower_;
};

// Returns FailedPrecondition if DIR holds parts of an older file of this name that a run of the current shape does not
// replace. Call it while the file is staged.
absl::Status RefuseOtherTrees(const std::string& root, const std::string& file);

}  // namespace sluice
