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

// The documents below the folders, by path, each once: .html, .htm and .txt. Left out: a .txt beside an .html of the
// same name, which is its source, and folders whose names begin with "_" or ".", where generators of documentation keep
// what is not a page. Symbolic links below the folders are not followed. NotFound names a folder that is not there;
// FailedPrecondition: it cannot be read, or there is no document at all.
absl::StatusOr<std::vector<CorpusFile>> ListCorpus(const std::vector<std::string>& folders);

}  // namespace sluice::examples::search
