#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// Compresses bytes as a server does.
std::string GzipOf(absl::string_view bytes);

// Returns a length prefix with any flag, and the bytes after it.
std::string Framed(char flag, absl::string_view bytes);

// Returns GzipOf `bytes`, framed as a compressed message.
std::string CompressedMessage(absl::string_view bytes);

}  // namespace sluice
