#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// What a server that compresses sends.
std::string GzipOf(absl::string_view bytes);

// A length prefix with any flag, and the bytes behind it.
std::string Framed(char flag, absl::string_view bytes);

// GzipOf `bytes`, framed as a compressed message.
std::string CompressedMessage(absl::string_view bytes);

}  // namespace sluice
