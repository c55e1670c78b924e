#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sluice/v1/manifest.pb.h"

#include "absl/status/statusor.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/striping_file.h"

namespace sluice {

struct StripeSpec {
  std::string root;  // DIR of DIR/worker-NNNN/<file>
  std::string file;
  uint32_t workers = 0;
  uint32_t sru_bytes = 0;
  uint32_t replicas = 1;
  // The upper levels of an aggregation tree, from the top. The file is striped over the workers of the first level,
  // each stripe of it over the workers of the second level, and so on. `workers`, `sru_bytes` and `replicas` describe
  // the lowest level. Empty: no tree.
  std::vector<StripeLevel> levels_above;
  bool replace = false;          // an older file of the same name
  uint64_t max_srus = kMaxSrus;  // tests lower it

  // The run ends with Cancelled when this becomes readable: a signalfd or an eventfd. -1: never.
  int stop_fd = -1;
  std::function<void(uint64_t bytes)> on_progress;  // bytes of the input that are written
  std::function<void()> on_published;               // after each worker: tests end the process there
};

// Stripes an open file, pipe or socket in one pass, from its current position to its end. It uses about 1 MiB of
// memory, plus 4 bytes for each SRU. All or nothing: after an error, DIR is as it was before. The new file becomes
// visible when everything is on disk: atomically at each worker, one worker after the other. A reader in between may
// find a mixture, which the checksums detect. If the machine fails at that moment, the mixture remains until the next
// run in DIR, or RecoverStripes: either completes the new file.
//
// In a tree, DIR holds a folder for each mid-level aggregator, which is the DIR of its workers. Returns the manifest of
// the top level. An older file of the same name can be replaced only by a file of the same shape.
//
// Errors: InvalidArgument (a bad name or shape), AlreadyExists, Unavailable (another run in DIR), ResourceExhausted
// (disk full), PermissionDenied, Aborted (a regular file changed during the read), OutOfRange (more than 2^24 SRUs),
// FailedPrecondition (an older file of another shape), Cancelled.
absl::StatusOr<v1::Manifest> StripeFile(int input_fd, const StripeSpec& spec);

// Completes the files that killed runs have begun to publish in DIR. Returns the errors of RecoverPublications,
// NotFound without DIR, and Unavailable if another run works there.
absl::Status RecoverStripes(const std::string& root);

}  // namespace sluice
