#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/storage/stripe/stripe_folder.h"

namespace sluice {

// One step of publishing a file: a worker's folder gets the staged stripes (.new-<name>), or loses the file. A plain
// value.
struct PublicationStep {
  std::string folder;                       // of the worker, relative to DIR: "worker-0000", "mla-0001/worker-0000"
  std::string name;                         // of the file there
  std::optional<uint32_t> manifest_crc32c;  // Crc32c of the new manifest as stored; absent: the file goes

  friend bool operator==(const PublicationStep&, const PublicationStep&) = default;
};

// Makes the steps durable in DIR, in one file. From then on the new file can always be completed, also if the machine
// fails between two steps: all staged stripes must be on disk before.
absl::Status BeginPublication(const StripeFolder& root, const std::string& file,
                              absl::Span<const PublicationStep> steps);
// Forgets the steps: they are complete and on disk, or undone.
absl::Status EndPublication(const StripeFolder& root, const std::string& file);

// Completes what runs have begun and not ended, since they were killed or the machine failed: after that, the new files
// are in place, and the files that they replaced are gone. Does nothing otherwise. Returns DataLoss if a staged stripe
// is missing.
absl::Status RecoverPublications(const StripeFolder& root);

}  // namespace sluice
