#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace sluice {

// One whole message as received, without its length prefix.
struct WireMessage {
  std::string bytes;
  bool gzip = false;  // the bytes are compressed
  friend bool operator==(const WireMessage&, const WireMessage&) = default;
};

// Decompresses the message if it is compressed. Returns the error of Gunzip.
absl::Status Decompress(WireMessage& message, int64_t max_bytes);

}  // namespace sluice
