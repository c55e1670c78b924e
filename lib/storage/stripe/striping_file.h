#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "sluice/v1/manifest.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/storage/stripe/stripe_folder.h"

namespace sluice {

// One level of an aggregation tree as a file is striped over it.
struct StripeLevel {
  uint32_t workers = 0;
  uint32_t replicas = 1;
};

// A file that is being striped, over workers or over a tree of them. Invisible to readers until Publish; destroyed
// before Keep, it leaves everything as it was. Not thread-safe.
class StripingFile {
 public:
  struct Spec {
    std::shared_ptr<StripeFolder> root;
    std::string file;
    absl::Span<const StripeLevel> levels;  // from here down to the workers; at least one. Outlive the file.
    uint32_t leaf_sru_bytes = 0;
    bool replace = false;  // an older file of the same name
    uint64_t max_srus = 0;
    bool keep_open = true;  // the stripes of the workers, so that they are not opened for each part
  };

  // AlreadyExists, InvalidArgument (a bad name, or one too long for the levels below), Unavailable (another run in a
  // folder), or what the file system says.
  static absl::StatusOr<std::unique_ptr<StripingFile>> Create(const Spec& spec);
  virtual ~StripingFile() = default;

  // Bytes from the beginning to the end. OutOfRange: they are more than max_srus SRUs.
  virtual absl::Status Append(std::string_view data) = 0;
  // After the last byte: writes the manifests. Those of files that belong to one of the level above name its manifest;
  // 0: there is none.
  virtual absl::Status Finish(uint32_t upper_manifest_crc32c) = 0;
  // See StripeStaging. A tree is published folder by folder, its stripes before its manifests.
  virtual absl::Status Publish() = 0;
  virtual void Keep() = 0;
  virtual const v1::Manifest& manifest() const = 0;
};

// Bytes of an SRU at the first of these levels: below the last one they are leaf_sru_bytes, and an SRU of any other is
// a data block of the level below it.
uint64_t SruBytesOf(absl::Span<const StripeLevel> levels, uint32_t leaf_sru_bytes);

absl::Status TooManySrus(uint64_t max_srus, uint64_t sru_bytes);

}  // namespace sluice
