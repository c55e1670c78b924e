#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// Removes RST_STREAM frames of streams that were never opened from the bytes of a client. Clients on gRPC's C core send
// them for calls that are cancelled before their headers leave (grpc/grpc issue 19655). By RFC 9113, section 6.4, such
// a frame ends the connection with all of its calls. There is one for each connection. Not thread-safe.
class IdleResetFilter {
 public:
  // Takes bytes of the connection from its preface on, cut anywhere. Returns the bytes to receive now, which are valid
  // until the next call. The beginning of a frame may be returned by a later call.
  absl::string_view Pass(absl::string_view bytes);

 private:
  static constexpr size_t kPrefaceBytes = 24;  // RFC 9113, section 3.4

  uint64_t skip_bytes_ = kPrefaceBytes;  // of the preface, or of a frame
  uint32_t last_stream_ = 0;             // the last stream that was opened
  std::string kept_;                     // the beginning of a frame header
  std::string passed_;
};

}  // namespace sluice
