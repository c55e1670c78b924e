#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "search.pb.h"

namespace sluice::examples::search {

// Returns the title and the text of a file. HTML loses its scripts, styles and navigation. Plain text is unchanged,
// with its first line as the title. The result is UTF-8; other bytes of plain text are read as Latin-1.
// InvalidArgument: the file cannot be read, is larger than 16 MiB, or has no text.
absl::StatusOr<v1::Document> ReadDocument(const std::string& path);

}  // namespace sluice::examples::search
