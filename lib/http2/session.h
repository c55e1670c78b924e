#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/http2/headers.h"

namespace sluice {

// HTTP/2's error codes (RFC 9113, section 7) that this code names.
enum class Http2Error : uint32_t {
  kNoError = 0,
  kProtocolError = 1,
  kInternalError = 2,
  kFlowControlError = 3,
  kRefusedStream = 7,
  kCancel = 8,
  kEnhanceYourCalm = 11,
};

// How a stream closed.
struct StreamEnd {
  enum class Kind {
    kComplete,   // Both sides sent END_STREAM.
    kReset,      // Either side sent RST_STREAM with `error`.
    kUnhandled,  // The other side says that it never looked at the request (REFUSED_STREAM, or a GOAWAY whose last
                 // stream is below this one), so the request is safe to send again.
    kLost,       // The connection ended first.
  };
  Kind kind = Kind::kComplete;
  Http2Error error = Http2Error::kNoError;
};

// What happens on one stream. Implemented by the owner of a stream; called from Http2Session::Receive (or from the
// call that closes the stream), so it may open, grant and reset streams of the session, and must not destroy the
// session. An object outlives its stream.
class StreamEvents {
 public:
  virtual ~StreamEvents() = default;

  // A header block: the request's or the response's, then at most once the trailers, with `end_stream`. Interim
  // responses (1xx) are left out.
  virtual void OnHeaders(HeaderList headers, bool end_stream) = 0;
  // `bytes` of DATA, valid during the call. `window_bytes` is what they took of the stream's window: their size and any
  // padding. Padding and END_STREAM may come by themselves, with no bytes.
  virtual void OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) = 0;
  // Everything that SendData said it keeps has left, and the stream is not at its end.
  virtual void OnWritable() {}
  // The stream is gone; nothing follows.
  virtual void OnClosed(StreamEnd end) = 0;
};

// What happens on a session beside its streams. The same rules as for StreamEvents.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;

  // Server side: a request has begun; its headers follow. Returns who hears of it; null refuses it (REFUSED_STREAM).
  virtual StreamEvents* OnStream(int32_t stream) = 0;
  // Client side: more streams may be opened than before (see open_slots), by a SETTINGS or since one has closed; or a
  // GOAWAY has come and fewer may.
  virtual void OnSlots() {}
};

// One HTTP/2 connection (RFC 9113), either side, over nghttp2: bytes in, bytes out, no I/O and no clock. One a
// connection. Not thread-safe.
//
// Flow control is the owner's: a stream begins with Options::stream_window_bytes, and the other side sends no more DATA
// than that until Grant. The window of the connection is wide and refilled before it is used up.
class Http2Session {
 public:
  enum class Side { kClient, kServer };
  struct Options {
    Side side = Side::kClient;
    uint32_t stream_window_bytes = 65535;          // SETTINGS_INITIAL_WINDOW_SIZE; 0 to 2^31 - 1
    uint32_t connection_window_bytes = 16u << 20;  // at least 65535
    uint32_t max_frame_bytes = 16384;              // SETTINGS_MAX_FRAME_SIZE; 16384 to 2^24 - 1
    uint32_t max_header_list_bytes = 64u << 10;    // of one header block, as RFC 9113 counts; above it the stream fails
    uint32_t max_concurrent_streams = 1u << 16;    // server side: that the client may have open
    uint32_t max_unsent_bytes_per_stream = 1u << 20;  // a bound on what SendData keeps for a window to open
  };

  // `events` outlives the session. Output() begins with the preface and SETTINGS.
  static absl::StatusOr<std::unique_ptr<Http2Session>> Create(const Options& options, SessionEvents& events);
  ~Http2Session();  // calls nobody
  Http2Session(const Http2Session&) = delete;
  Http2Session& operator=(const Http2Session&) = delete;

  // Bytes from the connection, cut anywhere. Not OK: the connection is to be closed once Output() is written (it holds
  // a GOAWAY); streams then are told kLost by Lose.
  absl::Status Receive(absl::string_view bytes);

  // Appends all frames that can be written now to `out`. Frames of one event end up in one write. From within a
  // callback nothing is appended: there is more to come.
  void Output(std::string& out);
  bool wants_write() const;

  // Client side. Streams that may be opened now: the server's MAX_CONCURRENT_STREAMS less those that are open; 0 after
  // a GOAWAY, and when stream numbers are used up. Before the server's SETTINGS: at most 100.
  size_t open_slots() const;
  // A GOAWAY came or was sent, or the connection failed: no stream may be opened any more. Once streams() is 0 too,
  // nothing more comes of the connection, and Receive may ignore bytes.
  bool going_away() const;
  size_t streams() const;  // that have not closed
  // Client side. Sends a request, with `body` and END_STREAM where `end_stream`; `granted_bytes` are added to the
  // stream's first window in the same write. `events` hears of the stream until its OnClosed. ResourceExhausted: no
  // slot. InvalidArgument: the headers are larger than the server, or 64 KB, lets them be.
  absl::StatusOr<int32_t> Open(const HeaderList& headers, std::string body, bool end_stream, uint32_t granted_bytes,
                               StreamEvents& events);

  // Any open stream; streams that closed meanwhile are ignored. Header lists are sent as they are; one that is larger
  // than the other side lets it be resets the stream with kInternalError.
  void SendHeaders(int32_t stream, const HeaderList& headers, bool end_stream);  // server: response, or trailers
  // DATA leaves as far as the other side's window lets it; the rest is kept and leaves by itself. Returns the bytes of
  // the stream that are kept. ResourceExhausted where they would be more than max_unsent_bytes_per_stream,
  // FailedPrecondition after END_STREAM; then nothing is taken.
  absl::StatusOr<size_t> SendData(int32_t stream, std::string bytes, bool end_stream);
  // The other side may send so many more bytes of DATA on this stream; 0 does nothing. Together less than 2^31, or the
  // stream is reset with kFlowControlError.
  void Grant(int32_t stream, uint32_t bytes);
  void Reset(int32_t stream, Http2Error error);  // OnClosed follows, within this call or Output

  void Ping();
  void GoAway(Http2Error error);  // streams that are open go on; no new ones
  // The connection is gone: every open stream hears OnClosed(kLost).
  void Lose();

 private:
  class Impl;
  explicit Http2Session(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
