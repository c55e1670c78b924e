#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace sluice {

// The flow-control window of one stream, as this side has opened it (RFC 9113, section 6.9), and the part of it that
// the schedule has granted. A stream begins with room for the length prefix of a message and one spare byte, since some
// servers never send their trailers while a window is exactly 0. That room costs nothing of the budget; if other bytes
// have used it, the next widening restores it. There is one for each call. Plain arithmetic.
class StreamWindow {
 public:
  static constexpr int64_t kFirstBytes = 6;
  // The largest window that HTTP/2 allows, less the window that streams have until the other side has acknowledged our
  // settings, since nghttp2 adds to that one.
  static constexpr int64_t kLargestBytes = (int64_t{1} << 31) - 1 - 65535;

  explicit StreamWindow(bool server_streaming) : server_streaming_(server_streaming) {}

  // The schedule grants `bytes` more of messages. They include bytes that have already come without a grant, in the
  // room for a prefix. TakeWidening has already restored that room.
  void Grant(int64_t bytes) {
    const int64_t repaid_bytes = std::min(bytes, ungranted_bytes_);
    ungranted_bytes_ -= repaid_bytes;
    granted_bytes_ += bytes - repaid_bytes;
  }

  // DATA has come: bytes of messages, of their length prefixes, and of padding.
  void Receive(int64_t message_bytes, int64_t prefix_bytes, int64_t padding_bytes) {
    open_bytes_ -= message_bytes + prefix_bytes + padding_bytes;
    ungranted_bytes_ += std::max<int64_t>(message_bytes - granted_bytes_, 0);
    granted_bytes_ = std::max<int64_t>(granted_bytes_ - message_bytes, 0);
    prefix_bytes_ += prefix_bytes;
  }

  // Returns the bytes by which the window must be widened now. It then has room for all granted bytes, for the next
  // length prefix if one may follow, and for the spare byte. It is at most the largest window of HTTP/2;
  // the rest follows as the window is used.
  int64_t TakeWidening() {
    const int64_t room = prefix_bytes_ >= kFirstBytes - 1 && !server_streaming_ ? 1 : kFirstBytes;
    const int64_t wanted = std::min(granted_bytes_ + room, kLargestBytes);
    const int64_t widening = std::max<int64_t>(wanted - open_bytes_, 0);
    open_bytes_ += widening;
    return widening;
  }

  int64_t granted_bytes() const { return granted_bytes_; }  // granted bytes that have not arrived

  // True if more is granted than HTTP/2 could open at once, and half of the largest window is used.
  bool low() const { return granted_bytes_ > open_bytes_ && open_bytes_ < kLargestBytes / 2; }

 private:
  bool server_streaming_;
  int64_t prefix_bytes_ = 0;  // received prefix bytes of all messages
  int64_t open_bytes_ = kFirstBytes;
  int64_t granted_bytes_ = 0;    // granted bytes that have not arrived
  int64_t ungranted_bytes_ = 0;  // message bytes that arrived in the room for a prefix and the spare byte
};

}  // namespace sluice
