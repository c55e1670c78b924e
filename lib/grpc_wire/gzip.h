#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Decompresses gzip (RFC 1952), one member or several. Takes memory as bytes come out, about twice as
// much. ResourceExhausted: more than `max_bytes` come out; Internal: `compressed` is not gzip, is cut off, or has
// bytes behind its end.
absl::StatusOr<std::string> Gunzip(absl::string_view compressed, int64_t max_bytes);

}  // namespace sluice
