#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::examples::search {

struct CorpusFile {
  std::string path;
  uint64_t bytes = 0;
};

// Returns the documents below the folders, each once and sorted by path: .html, .htm and .txt. Skips a .txt next to an
// .html of the same name, which is its source. Skips folders whose names begin with "_" or ".", where documentation
// generators keep other files. Symbolic links below the folders are not followed. NotFound names a missing folder.
// FailedPrecondition: a folder cannot be read, or there is no document at all.
absl::StatusOr<std::vector<CorpusFile>> ListCorpus(const std::vector<std::string>& folders);

}  // namespace sluice::examples::search
