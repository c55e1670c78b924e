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
  // Of an aggregation tree, the top first: the file is striped over the workers of the first level, each stripe of it
  // over those of the second, and so on; `workers`, `sru_bytes` and `replicas` are those of the lowest. Empty: no tree.
  std::vector<StripeLevel> levels_above;
  bool replace = false;          // an older file of the same name
  uint64_t max_srus = kMaxSrus;  // tests lower it

  // The run ends as Cancelled when this becomes readable: a signalfd, an eventfd. -1: never.
  int stop_fd = -1;
  std::function<void(uint64_t bytes)> on_progress;  // bytes of the input that are written
};

// Stripes an open file, pipe or socket, from where it stands to its end, in one pass; memory is about 1 MiB and 4 bytes
// for each SRU. All or nothing: after an error, DIR is as it was before. The new file becomes visible when everything
// is on disk, atomically at each worker, one worker after the other; a reader that comes in between may find a mixture,
// which the checksums tell. The same is left of a machine that fails in that moment: stripe again with `replace`.
//
// Of a tree, DIR holds a folder for each mid-level aggregator, which is the DIR of its workers. The manifest that is
// returned is that of the top. An older file of the same name can be replaced by one of the same shape only.
//
// Errors: InvalidArgument (a bad name or shape), AlreadyExists, Unavailable (another run in DIR), ResourceExhausted
// (disk full), PermissionDenied, Aborted (a regular file that changed while it was read), OutOfRange (more than 2^24
// SRUs), FailedPrecondition (an older file of another shape), Cancelled.
absl::StatusOr<v1::Manifest> StripeFile(int input_fd, const StripeSpec& spec);

}  // namespace sluice
