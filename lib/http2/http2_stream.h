#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/http2/headers.h"
#include "lib/http2/request_rules.h"
#include "lib/http2/session.h"
#include "lib/http2/unsent_data.h"

struct nghttp2_session;

namespace sluice {

// The state of one stream that nghttp2 does not keep. There is one for each open stream. nghttp2 has a pointer to it as
// the stream's user data, so that callbacks need no look-up.
struct Http2Stream {
  explicit Http2Stream(StreamEvents& stream_events, int32_t number = 0) : events(stream_events), id(number) {}

  // Submits the HEADERS that open the stream, and sets `id`. Returns nghttp2's error: 0 or less.
  int SubmitOpening(nghttp2_session* nghttp2, const HeaderList& headers, bool end_stream);
  // Submits further HEADERS. They leave before DATA that is submitted later.
  void SubmitHeaders(nghttp2_session* nghttp2, const HeaderList& headers, bool end_stream) const;
  // Submits the trailers, if there are any.
  void SubmitTrailers(nghttp2_session* nghttp2);
  // The bytes that the other side's windows allow on this stream now. A different stream may use the connection's
  // window first. The session then keeps more bytes than SendData returned, and the next SendData returns the higher
  // number.
  size_t SendableBytes(nghttp2_session* nghttp2) const;
  // How the stream ends if nghttp2 closes it with this error code.
  StreamEnd EndWith(Http2Error error, bool client) const;

  StreamEvents& events;
  int32_t id;

  bool opened = false;        // nghttp2 has the stream: its HEADERS were serialised, or received
  uint64_t output_after = 0;  // how many times Output had been called when its HEADERS were serialised
  UnsentData unsent;
  HeaderList trailers;             // they are sent after `unsent`
  bool sends_trailers = false;     // there are trailers to send
  size_t unsent_header_bytes = 0;  // of SendHeaders, here or in nghttp2
  bool sends_end = false;          // the last of `unsent`, or of the trailers, carries END_STREAM
  bool sends_data = false;         // a DATA frame is submitted, or will be once the stream is opened
  bool was_kept = false;           // SendData has reported kept bytes to its caller

  uint64_t grant_bytes = 0;     // granted bytes that nghttp2 does not have yet
  bool grant_is_next = false;   // the next WINDOW_UPDATE of this stream in nghttp2's queue is a Grant
  bool received_any = false;    // a header block of the response has arrived: the server has processed the request
  bool received_end = false;    // END_STREAM
  bool received_reset = false;  // RST_STREAM
  bool was_reset = false;       // Reset was called: only OnClosed follows

  uint32_t exceeded_header_list_bytes = 0;  // as in StreamEnd
  RequestRules rules;                       // server side
};

}  // namespace sluice
