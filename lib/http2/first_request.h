#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/http2/frame_header.h"
#include "lib/http2/headers.h"

namespace sluice {

// Reads what a client of HTTP/2 sends behind its preface, until its first request shows which server it needs. The
// owner answers the preface with kSettings, because some clients wait for SETTINGS before their first request. It
// passes the client's bytes on to a server with SETTINGS of its own, which expects no acknowledgement of kSettings, so
// this takes out that one. The server acknowledges the client's SETTINGS. There is one for each connection. Not
// thread-safe.
class FirstRequest {
 public:
  // A SETTINGS with NO_RFC7540_PRIORITIES, as Http2Session sends it: the first SETTINGS decides about it (RFC 9218,
  // section 2.1). It promises nothing else that the server might not keep.
  static constexpr absl::string_view kSettings{"\0\0\x06\x04\0\0\0\0\0\0\x09\0\0\0\x01", 15};

  // Takes the next bytes, cut anywhere, and appends those for the server to `out`. The beginning of a frame header may
  // be appended by a later call.
  void Read(absl::string_view bytes, std::string& out);

  // The head of the first request has come, or something that no client sends before it.
  bool decided() const { return decided_; }
  // Null if the head has not come, is malformed, or is larger than 64 KB.
  const HeaderList* head() const { return head_.has_value() ? &*head_ : nullptr; }
  // The acknowledgement has been taken out too, so further bytes need not pass through Read.
  bool done() const { return decided_ && acknowledged_ && frame_header_.empty(); }

 private:
  void BeginFrame(std::string& out);
  void EndFrame();

  bool decided_ = false;
  bool acknowledged_ = false;  // the acknowledgement has come
  std::optional<HeaderList> head_;
  size_t read_bytes_ = 0;     // until it is decided
  std::string frame_header_;  // the part that has come
  FrameHeader frame_;
  uint32_t payload_left_ = 0;
  std::string payload_;           // of HEADERS and CONTINUATION
  std::string block_;             // the header block, without padding and priority
  uint32_t stream_of_block_ = 0;  // that has begun; 0: none has
};

}  // namespace sluice
