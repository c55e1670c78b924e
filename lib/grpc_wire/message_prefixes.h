#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace sluice {

// Follows the length prefixes in the DATA of one direction of a stream (gRPC's PROTOCOL-HTTP2: Length-Prefixed-Message)
// without keeping or checking the messages. There is one for each stream. Plain arithmetic.
class MessagePrefixes {
 public:
  static constexpr size_t kPrefixBytes = 5;

  // The kinds of bytes in a piece of DATA.
  struct Part {
    int64_t message_bytes = 0;
    int64_t prefix_bytes = 0;
    bool whole_prefix = false;  // the last byte of a prefix was among them
  };
  Part Read(absl::string_view bytes);

  // Returns the bytes of the current message that are still to come. Returns 0 if no message is under way, or if only
  // part of its prefix has arrived.
  int64_t pending_message_bytes() const { return in_prefix_bytes_ < kPrefixBytes ? 0 : pending_bytes_; }
  int64_t messages() const { return messages_; }  // that have begun: their prefix has arrived

 private:
  size_t in_prefix_bytes_ = 0;  // bytes of the current prefix that have arrived
  int64_t pending_bytes_ = 0;
  int64_t messages_ = 0;
};

}  // namespace sluice
