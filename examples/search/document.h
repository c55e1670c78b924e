#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "examples/search/search.pb.h"

namespace sluice::examples::search {

// The title and the text of a file: of HTML without its scripts, styles and navigation; of plain text as it is, with
// its first line as the title. All of it UTF-8; bytes of plain text that are not are taken for Latin-1.
// InvalidArgument: the file cannot be read, is larger than 16 MiB, or has no text.
absl::StatusOr<v1::Document> ReadDocument(const std::string& path);

}  // namespace sluice::examples::search
