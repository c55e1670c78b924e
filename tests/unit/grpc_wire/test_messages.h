#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "lib/http2/headers.h"
#include "lib/http2/session.h"

namespace sluice {

// Compresses bytes as a server does.
std::string GzipOf(absl::string_view bytes);

// Returns a length prefix with any flag, and the bytes after it.
std::string Framed(char flag, absl::string_view bytes);

// Returns GzipOf `bytes`, framed as a compressed message.
std::string CompressedMessage(absl::string_view bytes);

// An end without an error, the head of a response, and its trailers with OK.
inline const StreamEnd kComplete = {};
HeaderList Head();
HeaderList OkTrailers();

}  // namespace sluice
