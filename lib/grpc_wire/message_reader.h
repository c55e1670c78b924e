#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <list>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/grpc_wire/message_buffers.h"
#include "lib/grpc_wire/wire_message.h"

namespace sluice {

// Cuts the DATA of one direction of a stream into messages (gRPC's PROTOCOL-HTTP2: Length-Prefixed-Message). A message
// stays as it came: Decompress takes long, and the caller chooses the thread. Memory grows with the bytes that came,
// never with what a prefix claims. There is one for each direction of a stream. Not thread-safe.
class MessageReader {
 public:
  static constexpr size_t kPrefixBytes = 5;

  // `max_message_bytes` is 0 or more, and bounds a message as it comes. `max_messages` is 1 if the call has one message
  // in this direction. `buffers` may be null.
  explicit MessageReader(int64_t max_message_bytes, int64_t max_messages = std::numeric_limits<int64_t>::max(),
                         MessageBuffers* buffers = nullptr);

  // Sets the value of grpc-encoding; the default is identity. Returns Unimplemented for an unknown one.
  absl::Status SetEncoding(absl::string_view encoding);

  // Takes bytes of DATA. Returns ResourceExhausted at the prefix of a message that is too large, Internal if one is
  // compressed and should not be, Unimplemented for more than `max_messages` (gRPC's statuscodes: cardinality
  // violation). After an error it reads nothing more and returns the same error. Messages that were whole before can
  // still be taken.
  absl::Status Read(absl::string_view bytes);

  // As in ResponseReader.
  int64_t pending_message_bytes() const;
  bool has_message() const { return !ready_.empty(); }
  bool TakeMessage(WireMessage& message);
  // True if part of a prefix or message came without the rest. At the end of a stream it must be false.
  bool in_message() const;
  // Number of messages that have come whole, taken or not.
  int64_t messages() const { return messages_; }

 private:
  absl::Status ReadSome(absl::string_view& bytes);
  absl::Status ReadPrefix(absl::string_view& bytes);
  void ReadBody(absl::string_view& bytes);
  void FinishMessage();

  const int64_t max_message_bytes_;
  const int64_t max_messages_;
  MessageBuffers* const buffers_;
  bool gzip_ = false;
  absl::Status error_;
  int64_t messages_ = 0;

  // The message under way.
  std::array<char, kPrefixBytes> prefix_ = {};
  size_t prefix_bytes_ = 0;  // that have come
  bool compressed_ = false;
  size_t body_size_ = 0;  // as the prefix says
  std::string body_;

  // Whole messages. A list takes no memory while it is empty; a std::deque does.
  std::list<WireMessage> ready_;
};

}  // namespace sluice
