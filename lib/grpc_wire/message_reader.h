#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Cuts the DATA of one direction of a stream into messages (gRPC's PROTOCOL-HTTP2: Length-Prefixed-Message), and
// decompresses those that are (identity and gzip). Memory grows with what came, never with what a prefix claims. One a
// direction of a stream. Not thread-safe.
class MessageReader {
 public:
  static constexpr size_t kPrefixBytes = 5;

  explicit MessageReader(int64_t max_message_bytes);

  // The value of grpc-encoding. Unimplemented for one that is not known.
  absl::Status SetEncoding(absl::string_view encoding);

  // ResourceExhausted: a message is too large; Internal: it is compressed and should not be, or does not decompress.
  // After an error nothing more is read.
  absl::Status Read(absl::string_view bytes);

  // As ResponseReader's.
  int64_t pending_message_bytes() const;
  bool TakeMessage(std::string& message);
  // Bytes of the prefix or the message that came without the rest: at the end of a stream there must be none.
  bool in_message() const;
};

}  // namespace sluice
