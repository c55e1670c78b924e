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

// Cuts the DATA of one direction of a stream into messages (gRPC's PROTOCOL-HTTP2: Length-Prefixed-Message). It does
// not decompress messages: Decompress takes long, and the caller chooses the thread. Memory grows with the received
// bytes, never with the size in a prefix. There is one for each direction of a stream. Not thread-safe.
class MessageReader {
 public:
  static constexpr size_t kPrefixBytes = 5;

  // `max_message_bytes` is 0 or more, and bounds a message before decompression. `max_messages` is 1 if the call has
  // one message in this direction. `buffers` may be null.
  explicit MessageReader(int64_t max_message_bytes, int64_t max_messages = std::numeric_limits<int64_t>::max(),
                         MessageBuffers* buffers = nullptr);

  // Sets the value of grpc-encoding; the default is identity. Returns Unimplemented for an unknown one.
  absl::Status SetEncoding(absl::string_view encoding);

  // Takes bytes of DATA. Returns ResourceExhausted at the prefix of a message that is too large, and Internal if a
  // message is compressed without an encoding. Returns Unimplemented for more than `max_messages` (gRPC's statuscodes:
  // cardinality violation). After an error it reads nothing more and returns the same error. Messages that were
  // complete before can still be taken.
  absl::Status Read(absl::string_view bytes);

  // As in ResponseReader.
  int64_t pending_message_bytes() const;
  bool has_message() const { return !ready_.empty(); }
  bool TakeMessage(WireMessage& message);
  // Returns true if part of a prefix or message has arrived without the rest. At the end of a stream it must be false.
  bool in_message() const;
  // The number of messages that have arrived whole, taken or not.
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

  // The current message.
  std::array<char, kPrefixBytes> prefix_ = {};
  size_t prefix_bytes_ = 0;  // bytes of the prefix that have arrived
  bool compressed_ = false;
  size_t body_size_ = 0;  // from the prefix
  std::string body_;

  // Whole messages. A list, because it takes no memory while it is empty; a std::deque does.
  std::list<WireMessage> ready_;
};

}  // namespace sluice
