#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <list>
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

  // `max_message_bytes` is 0 or more and bounds a message both as it comes and decompressed. `max_messages` is 1 where
  // the call has one message in this direction.
  explicit MessageReader(int64_t max_message_bytes, int64_t max_messages = std::numeric_limits<int64_t>::max());

  // The value of grpc-encoding; without one it is identity. Unimplemented for one that is not known.
  absl::Status SetEncoding(absl::string_view encoding);

  // ResourceExhausted: a message is too large, which shows with its prefix where it is not compressed; Internal: it is
  // compressed and should not be, or does not decompress; Unimplemented: more than `max_messages` come (gRPC's
  // statuscodes: cardinality violation). After an error nothing more is read, and the same error returned. Messages
  // that were whole before it can still be taken.
  absl::Status Read(absl::string_view bytes);

  // As ResponseReader's.
  int64_t pending_message_bytes() const;
  bool TakeMessage(std::string& message);
  // Bytes of the prefix or the message that came without the rest: at the end of a stream there must be none.
  bool in_message() const;
  // Bytes of length prefixes that came.
  int64_t prefix_bytes() const { return messages_ * int64_t{kPrefixBytes} + static_cast<int64_t>(prefix_bytes_); }
  // Messages that came whole, taken or not.
  int64_t messages() const { return messages_; }

 private:
  absl::Status ReadSome(absl::string_view& bytes);
  absl::Status ReadPrefix(absl::string_view& bytes);
  void ReadBody(absl::string_view& bytes);
  absl::Status FinishMessage();

  const int64_t max_message_bytes_;
  const int64_t max_messages_;
  bool gzip_ = false;
  absl::Status error_;
  int64_t messages_ = 0;

  // The message under way.
  std::array<char, kPrefixBytes> prefix_ = {};
  size_t prefix_bytes_ = 0;  // that came
  bool compressed_ = false;
  size_t body_size_ = 0;  // that the prefix says
  std::string body_;

  // Whole messages. A list, since it takes no memory while it is empty, which std::deque does.
  std::list<std::string> ready_;
};

}  // namespace sluice
