#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/v1/manifest.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/storage/stripe/publication.h"
#include "lib/storage/stripe/stripe_folder.h"

namespace sluice {

// One level of an aggregation tree that a file is striped over.
struct StripeLevel {
  uint32_t workers = 0;
  uint32_t replicas = 1;
};

// A file that is being striped, over workers or over a tree of them. Readers cannot see it until Publish. If it is
// destroyed before Keep, it leaves everything as it was. Not thread-safe.
class StripingFile {
 public:
  struct Spec {
    std::shared_ptr<StripeFolder> root;
    std::string file;
    absl::Span<const StripeLevel> levels;  // from this level down to the workers; at least one; must outlive the file
    uint32_t leaf_sru_bytes = 0;
    bool replace = false;  // an older file of the same name
    uint64_t max_srus = 0;
    bool keep_open = true;  // keeps the workers' stripe files open, instead of opening them for each part
  };

  // Returns AlreadyExists, InvalidArgument (a bad name, or a name too long for the levels below), Unavailable (another
  // run in a folder), or an error of the file system.
  static absl::StatusOr<std::unique_ptr<StripingFile>> Create(const Spec& spec);
  virtual ~StripingFile() = default;

  // Appends the next bytes of the file. Returns OutOfRange if the file exceeds max_srus SRUs.
  virtual absl::Status Append(std::string_view data) = 0;
  // Writes the manifests; call it after the last byte. If the file is a part of a file of the level above, its manifest
  // contains `upper_manifest_crc32c`, the checksum of the upper file's manifest; 0: it is not a part.
  virtual absl::Status Finish(uint32_t upper_manifest_crc32c) = 0;
  // See StripeStaging. Publish of a tree goes folder by folder, and publishes the stripes before the manifests.
  virtual absl::Status Prepare(const std::string& top, std::vector<PublicationStep>& steps) = 0;
  virtual absl::Status Publish(const std::function<void()>& on_step) = 0;
  virtual void Keep() = 0;
  virtual const v1::Manifest& manifest() const = 0;
};

// The bytes of an SRU at the first of these levels. At the last level they are leaf_sru_bytes; an SRU of any other
// level is a data block of the level below it.
uint64_t SruBytesOf(absl::Span<const StripeLevel> levels, uint32_t leaf_sru_bytes);

absl::Status TooManySrus(uint64_t max_srus, uint64_t sru_bytes);

}  // namespace sluice
