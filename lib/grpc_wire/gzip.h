#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Decompresses gzip (RFC 1952), one member or several. It takes about twice the memory of the bytes that have come out.
// Returns ResourceExhausted if more than `max_bytes` come out; Internal if `compressed` is not gzip, is cut off, or has
// bytes after its end.
absl::StatusOr<std::string> Gunzip(absl::string_view compressed, int64_t max_bytes);

// Compresses into one gzip member, at zlib's default level. Returns nothing if that is not smaller than `bytes`, which
// are at most 2^32 - 1.
std::optional<std::string> Gzip(absl::string_view bytes);

}  // namespace sluice
