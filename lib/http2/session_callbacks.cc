#include "lib/http2/session_callbacks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lib/http2/http2_stream.h"

namespace sluice {
namespace {

constexpr size_t kFrameHeaderBytes = 9;  // RFC 9113, section 4.1
constexpr size_t kTypicalFields = 12;    // of a gRPC call

absl::string_view View(const uint8_t* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

bool EndsStream(const nghttp2_frame& frame) {
  return (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
}

// Returns true for 1xx. ":status" is the only pseudo-header of a response, so it comes first.
bool IsInterim(const HeaderList& headers) {
  return !headers.empty() && headers.front().name == ":status" && headers.front().value.front() == '1';
}

}  // namespace

void Http2Session::Callbacks::Register(nghttp2_session_callbacks* callbacks) {
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, OnBeginHeaders);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, OnHeader);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, OnDataChunk);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, OnFrame);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, OnStreamClose);
  nghttp2_session_callbacks_set_before_frame_send_callback(callbacks, BeforeFrameSend);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, OnFrameSend);
  nghttp2_session_callbacks_set_send_data_callback(callbacks, SendDataFrame);
}

Http2Stream* Http2Session::Callbacks::StreamOf(const Http2Session& session, int32_t id) {
  if (session.lost_) return nullptr;  // nghttp2 still has pointers to the streams, which are deleted
  return static_cast<Http2Stream*>(nghttp2_session_get_stream_user_data(session.nghttp2_, id));
}

int Http2Session::Callbacks::OnBeginHeaders(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  session.headers_.clear();
  session.headers_.reserve(kTypicalFields);
  session.header_list_bytes_ = 0;
  if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return Done(session);
  const int32_t id = frame->hd.stream_id;
  StreamEvents* events = session.events_.OnStream(id);
  if (session.lost_) return NGHTTP2_ERR_CALLBACK_FAILURE;
  if (events == nullptr) {
    nghttp2_submit_rst_stream(session.nghttp2_, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // nghttp2 decodes the rest of the block without reporting it
  }
  // Incremental: streams of one urgency take turns. By default nghttp2 sends all of one stream before the next
  // (RFC 9218, section 4.2), so an endless stream starves the others of a client that reads slowly.
  const nghttp2_extpri turns = {.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 1};
  nghttp2_session_change_extpri_stream_priority(session.nghttp2_, id, &turns, /*ignore_client_signal=*/0);
  auto stream = std::make_unique<Http2Stream>(*events);
  stream->opened = true;
  nghttp2_session_set_stream_user_data(session.nghttp2_, id, stream.get());
  session.streams_.emplace(id, std::move(stream));
  return 0;
}

int Http2Session::Callbacks::OnHeader(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                                      size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t flags,
                                      void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  Http2Stream* stream = StreamOf(session, frame->hd.stream_id);
  if (stream == nullptr || stream->was_reset) return Done(session);
  session.header_list_bytes_ += name_bytes + value_bytes + kHeaderFieldOverhead;
  if (session.header_list_bytes_ > session.options_.max_header_list_bytes) {
    session.headers_.clear();
    stream->exceeded_header_list_bytes = session.options_.max_header_list_bytes;
    session.Reset(frame->hd.stream_id, Http2Error::kEnhanceYourCalm);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }
  session.headers_.push_back({std::string(View(name, name_bytes)), std::string(View(value, value_bytes)),
                              (flags & NGHTTP2_NV_FLAG_NO_INDEX) != 0});
  return 0;
}

int Http2Session::Callbacks::OnHeaderBlock(Http2Session& session, const nghttp2_frame& frame) {
  Http2Stream* stream = StreamOf(session, frame.hd.stream_id);
  if (stream == nullptr || stream->was_reset) return 0;
  stream->received_any = true;
  stream->events.OnHeaderBytes(kFrameHeaderBytes + frame.hd.length);  // the length includes the CONTINUATION frames
  if (IsInterim(session.headers_)) return 0;
  stream->received_end = EndsStream(frame);
  stream->events.OnHeaders(std::exchange(session.headers_, {}), EndsStream(frame));
  return Done(session);
}

int Http2Session::Callbacks::OnDataChunk(nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t bytes,
                                         void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  // The connection's window must not limit any stream. nghttp2 sends an update for each half of it.
  nghttp2_session_consume_connection(session.nghttp2_, bytes);
  Http2Stream* stream = StreamOf(session, id);
  if (stream == nullptr || stream->was_reset) return 0;
  stream->events.OnData(View(data, bytes), bytes, false);
  return Done(session);
}

int Http2Session::Callbacks::OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
      return OnHeaderBlock(session, *frame);
    case NGHTTP2_DATA: {
      Http2Stream* stream = StreamOf(session, frame->hd.stream_id);
      if (stream == nullptr || stream->was_reset) return 0;
      // OnDataChunk has passed on the bytes. Report END_STREAM only here, after nghttp2 has checked the body against
      // content-length. Report padding here too: its last byte is the last byte of the frame.
      stream->received_end = EndsStream(*frame);
      if (frame->data.padlen > 0 || EndsStream(*frame)) {
        stream->events.OnData(absl::string_view(), frame->data.padlen, EndsStream(*frame));
      }
      break;
    }
    case NGHTTP2_RST_STREAM:
      if (Http2Stream* stream = StreamOf(session, frame->hd.stream_id); stream != nullptr) {
        stream->received_reset = true;
      }
      break;
    case NGHTTP2_SETTINGS: {
      const uint32_t before =
          std::exchange(session.max_streams_,
                        nghttp2_session_get_remote_settings(session.nghttp2_, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS));
      if (session.options_.side == Side::kClient && session.max_streams_ > before) session.events_.OnSlots();
      break;
    }
    case NGHTTP2_GOAWAY:
      session.going_away_ = true;
      session.goaway_error_ = static_cast<Http2Error>(frame->goaway.error_code);
      if (session.options_.side == Side::kClient) session.events_.OnSlots();
      break;
    default:
      break;
  }
  return Done(session);
}

int Http2Session::Callbacks::OnStreamClose(nghttp2_session*, int32_t id, uint32_t error_code, void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  if (const Http2Stream* stream = StreamOf(session, id); stream != nullptr) {
    session.Close(id, session.EndOf(*stream, error_code));
  }
  return 0;  // not Done(): if this fails, nghttp2 1.52 leaks the HEADERS that it could not send
}

// nghttp2 treats padding as consumed, and returns it to the window of its stream. The owner could then not count the
// bytes that the other side may send, so drop every window update of a stream that is not a grant.
int Http2Session::Callbacks::BeforeFrameSend(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
  if (frame->hd.type != NGHTTP2_WINDOW_UPDATE || frame->hd.stream_id == 0) return 0;
  Http2Stream* stream = StreamOf(*static_cast<Http2Session*>(user_data), frame->hd.stream_id);
  if (stream == nullptr || !std::exchange(stream->grant_is_next, false)) return NGHTTP2_ERR_CANCEL;
  return 0;
}

int Http2Session::Callbacks::OnFrameSend(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
  if (frame->hd.type == NGHTTP2_HEADERS) {
    Http2Stream* stream = StreamOf(*static_cast<Http2Session*>(user_data), frame->hd.stream_id);
    if (stream == nullptr || stream->unsent_header_bytes == 0) return 0;  // the headers of requests are not counted
    for (const nghttp2_nv& field : absl::MakeConstSpan(frame->headers.nva, frame->headers.nvlen)) {
      stream->unsent_header_bytes -= field.namelen + field.valuelen + kHeaderFieldOverhead;
    }
  }
  if (frame->hd.type == NGHTTP2_GOAWAY) {
    const nghttp2_goaway& goaway = frame->goaway;
    static_cast<Http2Session*>(user_data)->goaway_text_ =
        absl::StrCat(nghttp2_http2_strerror(goaway.error_code), goaway.opaque_data_len > 0 ? ": " : "",
                     View(goaway.opaque_data, goaway.opaque_data_len));
  }
  return 0;
}

ssize_t Http2Session::Callbacks::ReadData(nghttp2_session*, int32_t id, uint8_t*, size_t bytes, uint32_t* flags,
                                          nghttp2_data_source*, void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  Http2Stream* stream = StreamOf(session, id);
  if (stream == nullptr) return NGHTTP2_ERR_CALLBACK_FAILURE;
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (stream->unsent.size() > bytes) return static_cast<ssize_t>(bytes);
  // This is the last frame until SendData submits more bytes. Deferring the next frame instead would hold back trailers
  // while the window is 0.
  *flags |= NGHTTP2_DATA_FLAG_EOF;
  stream->sends_data = false;
  if (!stream->sends_end || stream->sends_trailers) *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
  if (std::exchange(stream->sends_trailers, false)) {
    session.SubmitHeaders(id, std::exchange(stream->trailers, {}), true);
  }
  return static_cast<ssize_t>(stream->unsent.size());
}

int Http2Session::Callbacks::SendDataFrame(nghttp2_session*, nghttp2_frame* frame, const uint8_t* frame_header,
                                           size_t bytes, nghttp2_data_source*, void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  const int32_t id = frame->hd.stream_id;
  Http2Stream* stream = StreamOf(session, id);
  if (stream == nullptr) return NGHTTP2_ERR_CALLBACK_FAILURE;
  absl::StrAppend(session.serialised_to_, View(frame_header, kFrameHeaderBytes), stream->unsent.Front(bytes));
  stream->unsent.Remove(bytes);
  if (stream->unsent.empty() && std::exchange(stream->was_kept, false) && !stream->sends_end) {
    session.writable_.push_back(id);
  }
  return session.output_is_full() ? NGHTTP2_ERR_PAUSE : 0;
}

}  // namespace sluice
