#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/http2/headers.h"
#include "lib/http2/idle_reset_filter.h"

struct nghttp2_session;

namespace sluice {

struct Http2Stream;

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
    kUnhandled,  // The request is safe to send again. The other side did not process it (REFUSED_STREAM, or a GOAWAY
                 // whose last stream is lower than this one), or the connection ended before the request left.
    kLost,       // The connection ended first.
  };
  Kind kind = Kind::kComplete;
  Http2Error error = Http2Error::kNoError;
  bool reset_here = false;  // kReset: this side sent the RST_STREAM, by Reset or since the other side broke HTTP/2
  uint32_t exceeded_header_list_bytes = 0;  // reset_here: a header block was larger than this bound; 0: none was
  std::string why = {};                     // kLost: why, if the owner of the session knows
};

// The events of one stream. The owner of a stream implements it. Http2Session::Receive calls it, or the call that
// closes the stream. It may open, grant and reset streams of the session, and must not destroy the session. It must
// outlive its stream.
class StreamEvents {
 public:
  virtual ~StreamEvents() = default;

  // A header block has arrived, and took this many bytes of the connection, including frame headers. OnHeaders follows,
  // unless it is an interim response.
  virtual void OnHeaderBytes(size_t /*wire_bytes*/) {}
  // A header block has arrived: first the request or the response, then at most once the trailers, with `end_stream`.
  // Interim responses (1xx) are left out.
  virtual void OnHeaders(HeaderList headers, bool end_stream) = 0;
  // DATA has arrived; `bytes` is valid during the call. `window_bytes` is its size in the stream's window, including
  // padding. Padding and END_STREAM may come without bytes.
  virtual void OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) = 0;
  // All bytes that SendData has kept have left, and the stream has not ended.
  virtual void OnWritable() {}
  // The stream is gone. No other event follows.
  virtual void OnClosed(StreamEnd end) = 0;
};

// The events of a session, except the events of its streams. The rules of StreamEvents apply.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;

  // Server side: a request has begun, and its headers follow. Returns the receiver of its events; null refuses the
  // request (REFUSED_STREAM).
  virtual StreamEvents* OnStream(int32_t stream) = 0;
  // Client side: the number of streams that may be opened (see open_slots) has grown, by a SETTINGS or because a stream
  // has closed. It is also called if the session is going away, by a GOAWAY or with its last stream number.
  virtual void OnSlots() {}
  // After Receive: a header block has arrived in part, and its fields take this many bytes of memory. 0: no block has.
  virtual void OnPartialHead(size_t /*bytes*/) {}
  // Server side: a request is reset because it is not valid in HTTP/2 (RequestRules), for this reason.
  virtual void OnMalformedRequest(absl::string_view /*why*/) {}
};

// One HTTP/2 connection (RFC 9113), either side, over nghttp2: bytes in, bytes out, no I/O and no clock. There is one
// for each connection. Not thread-safe.
//
// The owner does the flow control of streams: a stream begins with Options::stream_window_bytes, and the other side
// sends no more DATA than that until Grant. The window of the connection is wide, and refilled before it is used up.
//
// nghttp2 must not be called for output from one of its callbacks. So the session queues the calls that StreamEvents
// and SessionEvents make, and serialises their frames once the outermost call has left nghttp2.
class Http2Session {
 public:
  enum class Side { kClient, kServer };
  // Frames that change nothing, and that the other side must answer at once.
  enum class Probe { kPing, kSettings };
  // Upper bound of a header list that can be sent, in the size of RFC 9113. nghttp2 sends no larger lists. It counts 12
  // bytes a header instead of the 32 of the RFC, so a list that fits this bound also fits nghttp2's.
  static constexpr uint32_t kMaxSentHeaderListBytes = 64u << 10;
  struct Options {
    Side side = Side::kClient;
    uint32_t stream_window_bytes = 65535;          // SETTINGS_INITIAL_WINDOW_SIZE; 0 to 2^31 - 1
    uint32_t connection_window_bytes = 16u << 20;  // at least 65535
    uint32_t max_frame_bytes = 16384;              // SETTINGS_MAX_FRAME_SIZE; 16384 to 2^24 - 1
    // Maximum size of one header block, in the size of RFC 9113; above it the stream fails.
    uint32_t max_header_list_bytes = 64u << 10;
    uint32_t max_concurrent_streams = 1u << 16;       // server side: streams that the client may have open
    uint32_t max_unsent_bytes_per_stream = 1u << 20;  // bytes that SendData keeps until the window opens
    uint32_t first_stream = 1;  // client side: the number of the first stream; odd, 1 to 2^31 - 1. For tests
    // Output stops after the DATA frame that reaches this number of bytes. The next Output continues there.
    size_t max_output_bytes = std::numeric_limits<size_t>::max();
    // Server side: resets that a client may send in a second, and at once. Above that the connection fails
    // (CVE-2023-44487).
    uint32_t resets_per_second = 33;
    uint32_t reset_burst = 1000;
    // Server side: ignores resets of streams that were never opened. See IdleResetFilter.
    bool forgive_idle_resets = false;
  };

  // `events` must outlive the session. Output() begins with the preface and SETTINGS.
  static absl::StatusOr<std::unique_ptr<Http2Session>> Create(const Options& options, SessionEvents& events);
  ~Http2Session();  // calls no events
  Http2Session(const Http2Session&) = delete;
  Http2Session& operator=(const Http2Session&) = delete;

  // Takes bytes from the connection, cut anywhere. After an error the owner writes Output(), which has a GOAWAY, and
  // closes the connection. It then calls Lose to end the streams.
  absl::Status Receive(absl::string_view bytes);

  // Appends the frames that can be written now to `out`; see max_output_bytes. Within an event it appends nothing, so
  // that all frames of that event go into one write.
  void Output(std::string& out);
  bool wants_write() const;

  // Client side: the number of streams that may be opened now: the server's MAX_CONCURRENT_STREAMS minus the open
  // streams. It is 0 while the session is going away, and at most 100 before the server's SETTINGS.
  size_t open_slots() const;
  // Returns true if no stream may be opened any longer: a GOAWAY was received or sent, the connection failed, or
  // out_of_streams(). Once streams() is 0 as well, the connection is useless, and Receive may ignore bytes.
  bool going_away() const { return going_away_ || !error_.ok() || lost_ || out_of_streams(); }
  // Client side: returns true if all stream numbers are used, so the next request needs a new connection. Implies
  // going_away().
  bool out_of_streams() const { return unused_ids() == 0; }
  // The error of the other side's last GOAWAY.
  std::optional<Http2Error> goaway_error() const { return goaway_error_; }
  // HEADERS and DATA frames that have come in full.
  uint64_t received_stream_frames() const { return received_stream_frames_; }
  size_t streams() const { return streams_.size(); }  // number of streams that have not closed
  // Client side: sends a request with `body`, and with END_STREAM if `end_stream`. The same write adds `granted_bytes`
  // to the stream's first window. `events` gets the events of the stream until its OnClosed. Returns ResourceExhausted
  // if there is no slot, InvalidArgument if the headers are larger than the server allows, or larger than 64 KB.
  absl::StatusOr<int32_t> Open(const HeaderList& headers, std::string body, bool end_stream, uint32_t granted_bytes,
                               StreamEvents& events);

  // The functions below are for open streams, and ignore streams that have closed. Header lists are sent unchanged. A
  // list that is larger than the other side allows resets the stream with kInternalError.
  void SendHeaders(int32_t stream, const HeaderList& headers, bool end_stream);  // server: response, or trailers
  // Sends as much DATA as the other side's window allows, and keeps the rest until the window opens. Returns the number
  // of bytes of the stream that are kept. Returns ResourceExhausted if it would exceed max_unsent_bytes_per_stream, and
  // FailedPrecondition after END_STREAM; then no byte is taken.
  absl::StatusOr<size_t> SendData(int32_t stream, std::string bytes, bool end_stream);
  // Bytes of SendData that no Output has returned yet, because the window is closed or Output was not called.
  size_t unsent_bytes(int32_t stream) const;
  // Server side: bytes of SendHeaders, as HTTP/2 counts them, that no Output has returned yet. After a reset they count
  // until the next Output.
  size_t unsent_header_bytes(int32_t stream) const;
  // Client side: whether an Output has returned the headers of this stream. A reset before that sends nothing.
  bool on_wire(int32_t stream) const;
  // Lets the other side send `bytes` more of DATA on this stream; 0 does nothing. If the window grows to 2^31 or more,
  // the stream is reset with kFlowControlError.
  void Grant(int32_t stream, uint32_t bytes);
  void Reset(int32_t stream, Http2Error error);  // OnClosed follows, within this call or Output

  // kSettings sends an empty SETTINGS, or nothing if the other side has not acknowledged the last SETTINGS.
  void Send(Probe probe);
  void GoAway(Http2Error error);  // open streams continue; no new ones are opened
  // Server side: asks the client to open no more streams, and still accepts streams that are on their way (RFC 9113,
  // section 6.8). The owner calls GoAway after a round trip.
  void AnnounceGoAway();
  // Reports that the connection is lost: every open stream gets OnClosed, with kLost and `why`, or with kUnhandled.
  void Lose(absl::string_view why = {});

 private:
  Http2Session(const Options& options, SessionEvents& events);

  struct Callbacks;  // functions that nghttp2 calls; their user data is the session

  size_t unused_ids() const;
  Http2Stream* Find(int32_t id);
  void Close(int32_t id, StreamEnd end);

  void SubmitData(int32_t id);
  bool output_is_full() const { return serialised_to_->size() >= options_.max_output_bytes; }
  void Serialise(std::string& out);
  void SerialiseFrames();
  void StartOpened();
  void SubmitGrants();
  void TellWritable();

  const Options options_;
  SessionEvents& events_;
  nghttp2_session* nghttp2_ = nullptr;
  absl::flat_hash_map<int32_t, std::unique_ptr<Http2Stream>> streams_;  // the open streams, by number
  uint64_t received_stream_frames_ = 0;

  // The header block that is being received. Blocks of two streams never interleave (RFC 9113, section 4.3).
  HeaderList headers_;
  size_t header_list_bytes_ = 0;
  int32_t header_stream_ = 0;
  size_t told_partial_bytes_ = 0;  // as of the last OnPartialHead

  IdleResetFilter idle_resets_;

  std::string output_;                    // serialised by Receive, and not yet returned by Output
  uint64_t outputs_ = 0;                  // calls of Output
  std::string* serialised_to_ = nullptr;  // not null while Serialise runs
  bool in_nghttp2_ = false;               // a function of nghttp2 that may call back is on the stack
  std::vector<int32_t> opened_;           // streams from Open whose HEADERS are not serialised yet
  std::vector<int32_t> granted_;          // streams with grant_bytes
  std::vector<int32_t> writable_;         // streams whose kept bytes have left

  bool settings_unacknowledged_ = true;  // the last SETTINGS of this side
  uint32_t max_streams_ = 0;             // the other side's MAX_CONCURRENT_STREAMS
  bool going_away_ = false;
  std::optional<Http2Error> goaway_error_;
  bool lost_ = false;
  absl::Status error_;       // of the connection; after an error nothing more is received
  std::string goaway_text_;  // why nghttp2 sent a GOAWAY
};

}  // namespace sluice
