#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "sluice/plan.h"

#include "absl/strings/string_view.h"
#include "lib/grpc_wire/message_prefixes.h"

namespace sluice {

// The response of one stream as flow control lets it come: its messages, the bytes of them that were requested from the
// schedule, the bytes that the schedule has granted, and the stream's window, as this side has opened it (RFC 9113,
// section 6.9). There is one for each stream. Plain arithmetic.
//
// A stream begins with room for the length prefix of a message and one spare byte, since some servers never send their
// trailers while a window is exactly 0. That room costs nothing of the budget; if other bytes have used it, the next
// widening restores it.
class ResponseFlow {
 public:
  static constexpr int64_t kFirstBytes = 6;
  // The largest window that HTTP/2 allows, less the window that streams have until the other side has acknowledged our
  // settings, since nghttp2 adds to that one.
  static constexpr int64_t kLargestBytes = (int64_t{1} << 31) - 1 - 65535;

  // `unasked_bytes`: the most that may come before it is asked for, if the schedule grants the response without a
  // bound; 0: all of it.
  explicit ResponseFlow(bool many_messages, int64_t unasked_bytes = 0)
      : many_messages_(many_messages), unasked_bytes_(unasked_bytes) {}

  // The schedule grants `bytes` more of messages; kMaxResponseBytes: without a bound. They include bytes that have
  // already come without a grant, in the room for a prefix. TakeWidening has already restored that room.
  void Grant(int64_t bytes) {
    const bool unbounded = bytes >= kMaxResponseBytes;
    unbounded_ |= unbounded;
    comes_unasked_ |= unbounded && unasked_bytes_ > 0;
    if (!comes_unasked_ || granted_bytes_ == 0) Add(unbounded && unasked_bytes_ > 0 ? unasked_bytes_ : bytes);
  }
  // Whether the response was granted without a bound, and asked_bytes and OpenAhead decide how much may come.
  bool comes_unasked() const { return comes_unasked_; }
  // Then grants the bytes that were asked for, and more messages if there may be some. Small steps would cost a frame
  // for each message.
  void OpenAhead() {
    if (!comes_unasked_) return;
    const int64_t ahead_bytes = many_messages_ ? unasked_bytes_ : 0;
    const int64_t more_bytes = asked_bytes_ + ahead_bytes - granted_bytes_;
    if (more_bytes > ahead_bytes / 2) Add(more_bytes);
  }

  // DATA has come. `padding_bytes` of the window were not part of `bytes`.
  MessagePrefixes::Part Receive(absl::string_view bytes, int64_t padding_bytes) {
    const MessagePrefixes::Part part = prefixes_.Read(bytes);
    open_bytes_ -= part.message_bytes + part.prefix_bytes + padding_bytes;
    ungranted_bytes_ += std::max<int64_t>(part.message_bytes - granted_bytes_, 0);
    granted_bytes_ = std::max<int64_t>(granted_bytes_ - part.message_bytes, 0);
    // Several messages together may be larger than a grant without a bound.
    if (unbounded_ && !comes_unasked_ && granted_bytes_ < kMaxResponseBytes / 2) granted_bytes_ += kMaxResponseBytes;
    prefix_bytes_ += part.prefix_bytes;
    asked_bytes_ = part.whole_prefix ? 0 : std::max<int64_t>(asked_bytes_ - part.message_bytes, 0);
    return part;
  }

  // Returns the bytes by which the window must be widened now. It then has room for all granted bytes, for the next
  // length prefix if one may follow, and for the spare byte. It is at most the largest window of HTTP/2;
  // the rest follows as the window is used.
  int64_t TakeWidening() {
    const int64_t room = prefix_bytes_ >= kFirstBytes - 1 && !many_messages_ ? 1 : kFirstBytes;
    const int64_t wanted = std::min(granted_bytes_ + room, kLargestBytes);
    const int64_t widening = std::max<int64_t>(wanted - open_bytes_, 0);
    open_bytes_ += widening;
    return widening;
  }

  // True if more is granted than HTTP/2 could open at once, and half of the largest window is used.
  bool low() const { return granted_bytes_ > open_bytes_ && open_bytes_ < kLargestBytes / 2; }

  // Requests `wanted_bytes` of the current message, at most all that are to come. Returns whether asked_bytes() has
  // grown: half of the wanted bytes stay on their way, so that the worker need not wait for the next grant.
  bool Ask(int64_t wanted_bytes) {
    const int64_t pending_bytes = pending_message_bytes();
    wanted_bytes = std::min(wanted_bytes, pending_bytes);
    if (wanted_bytes <= asked_bytes_) return false;
    if (asked_bytes_ > wanted_bytes / 2 && wanted_bytes != pending_bytes) return false;
    asked_bytes_ = wanted_bytes;
    return true;
  }

  int64_t granted_bytes() const { return granted_bytes_; }  // granted bytes that have not arrived
  // Bytes of the current message that were requested from the schedule and have not arrived.
  int64_t asked_bytes() const { return asked_bytes_; }
  // Bytes of the current message that are still to come; 0 between messages.
  int64_t pending_message_bytes() const { return prefixes_.pending_message_bytes(); }
  int64_t messages() const { return prefixes_.messages(); }  // that have begun

 private:
  void Add(int64_t bytes) {
    const int64_t repaid_bytes = std::min(bytes, ungranted_bytes_);
    ungranted_bytes_ -= repaid_bytes;
    granted_bytes_ += bytes - repaid_bytes;
  }

  bool many_messages_;
  int64_t unasked_bytes_;
  bool unbounded_ = false;
  bool comes_unasked_ = false;
  MessagePrefixes prefixes_;
  int64_t prefix_bytes_ = 0;  // received prefix bytes of all messages
  int64_t open_bytes_ = kFirstBytes;
  int64_t granted_bytes_ = 0;    // granted bytes that have not arrived
  int64_t ungranted_bytes_ = 0;  // message bytes that arrived in the room for a prefix and the spare byte
  int64_t asked_bytes_ = 0;
};

}  // namespace sluice
