#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Decompresses gzip (RFC 1952) with one or several members. It needs about twice the memory of the decompressed bytes.
// Returns ResourceExhausted if more than `max_bytes` come out. Returns Internal if `compressed` is not gzip, is cut
// off, or has bytes after its end.
absl::StatusOr<std::string> Gunzip(absl::string_view compressed, int64_t max_bytes);

// Compresses into one gzip member, at zlib's default level. Returns nullopt if the result is not smaller than `bytes`.
// The size of `bytes` is at most 2^32 - 1.
std::optional<std::string> Gzip(absl::string_view bytes);

}  // namespace sluice
