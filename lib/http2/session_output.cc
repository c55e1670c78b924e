// How Http2Session sends.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/http2/http2_stream.h"
#include "lib/http2/session.h"
#include "lib/http2/session_callbacks.h"

namespace sluice {
namespace {

uint8_t* Bytes(const std::string& text) {
  return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
}

std::vector<nghttp2_nv> NameValues(const HeaderList& headers) {
  std::vector<nghttp2_nv> fields;
  fields.reserve(headers.size());
  for (const HeaderField& field : headers) {
    fields.push_back({Bytes(field.name), Bytes(field.value), field.name.size(), field.value.size(),
                      static_cast<uint8_t>(field.secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE)});
  }
  return fields;
}

size_t HeaderListBytes(const HeaderList& headers) {
  size_t bytes = 0;
  for (const HeaderField& field : headers) bytes += field.name.size() + field.value.size() + kHeaderFieldOverhead;
  return bytes;
}

uint8_t EndFlag(bool end_stream) {
  return end_stream ? NGHTTP2_FLAG_END_STREAM : NGHTTP2_FLAG_NONE;
}

}  // namespace

absl::Status Http2Session::CheckSentHeaders(size_t bytes) const {
  const size_t theirs = nghttp2_session_get_remote_settings(nghttp2_, NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE);
  const size_t bound = std::min<size_t>(theirs, kMaxSentHeaderListBytes);
  if (bytes <= bound) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the header list has ", bytes,
                                                 " bytes as HTTP/2 counts them, and the ",
                                                 bound == theirs ? "other side" : "session", " takes at most ", bound));
}

absl::StatusOr<int32_t> Http2Session::Open(const HeaderList& headers, std::string body, bool end_stream,
                                           uint32_t granted_bytes, StreamEvents& events) {
  if (open_slots() == 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no stream can be opened: ", streams_.size(),
                                                     " are open, the other side allows ", max_streams_,
                                                     going_away() ? ", and the connection is going away" : ""));
  }
  if (absl::Status status = CheckSentHeaders(HeaderListBytes(headers)); !status.ok()) return status;
  auto stream = std::make_unique<Http2Stream>(events);
  const std::vector<nghttp2_nv> fields = NameValues(headers);
  const int32_t id = nghttp2_submit_headers(nghttp2_, EndFlag(end_stream && body.empty()), -1, nullptr, fields.data(),
                                            fields.size(), stream.get());
  if (id < 0) return absl::InternalError(absl::StrCat("nghttp2_submit_headers: ", nghttp2_strerror(id)));
  stream->sends_data = !body.empty();
  stream->unsent.Append(std::move(body));
  stream->sends_end = end_stream;
  streams_.emplace(id, std::move(stream));
  opened_.push_back(id);
  Grant(id, granted_bytes);
  return id;
}

void Http2Session::SendHeaders(int32_t id, const HeaderList& headers, bool end_stream) {
  Http2Stream* stream = Find(id);
  if (stream == nullptr || stream->was_reset || stream->sends_end) return;
  const size_t bytes = HeaderListBytes(headers);
  if (!CheckSentHeaders(bytes).ok()) {
    Reset(id, Http2Error::kInternalError);
    return;
  }
  stream->unsent_header_bytes += bytes;
  stream->sends_end = end_stream;
  if (end_stream && (stream->sends_data || !stream->opened)) {
    stream->trailers = headers;
    stream->sends_trailers = true;
  } else {
    SubmitHeaders(id, headers, end_stream);
  }
}

void Http2Session::SubmitHeaders(int32_t id, const HeaderList& headers, bool end_stream) {
  const std::vector<nghttp2_nv> fields = NameValues(headers);
  nghttp2_submit_headers(nghttp2_, EndFlag(end_stream), id, nullptr, fields.data(), fields.size(), nullptr);
}

// The bytes that the other side's windows allow on this stream now. A different stream may use the connection's window
// first. The session then keeps more bytes than SendData returned, and the next SendData returns the higher number.
size_t Http2Session::SendableBytes(int32_t id) const {
  int64_t window = nghttp2_session_get_stream_remote_window_size(nghttp2_, id);
  if (window < 0) {  // not opened yet
    window = nghttp2_session_get_remote_settings(nghttp2_, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE);
  }
  window = std::min<int64_t>(window, nghttp2_session_get_remote_window_size(nghttp2_));
  return static_cast<size_t>(std::max<int64_t>(window, 0));
}

absl::StatusOr<size_t> Http2Session::SendData(int32_t id, std::string bytes, bool end_stream) {
  Http2Stream* stream = Find(id);
  if (stream == nullptr || stream->was_reset) return 0;
  if (stream->sends_end) {
    return absl::FailedPreconditionError(absl::StrCat("stream ", id, " has been ended by this side already"));
  }
  const size_t unsent = stream->unsent.size() + bytes.size();
  const size_t sendable = SendableBytes(id);
  const size_t kept = unsent > sendable ? unsent - sendable : 0;
  if (kept > options_.max_unsent_bytes_per_stream) {
    return absl::ResourceExhaustedError(absl::StrCat("stream ", id, " would keep ", kept,
                                                     " bytes for a window to open, and max_unsent_bytes_per_stream is ",
                                                     options_.max_unsent_bytes_per_stream));
  }
  stream->unsent.Append(std::move(bytes));
  stream->sends_end = end_stream;
  stream->was_kept = kept > 0;
  if (!stream->sends_data && (unsent > 0 || end_stream)) {
    stream->sends_data = true;
    if (stream->opened) SubmitData(id);
  }
  return kept;
}

void Http2Session::SubmitData(int32_t id) {
  nghttp2_data_provider provider = {};
  provider.read_callback = Callbacks::ReadData;
  // END_STREAM means "with the last frame". ReadData removes the flag if the stream does not end there.
  nghttp2_submit_data(nghttp2_, NGHTTP2_FLAG_END_STREAM, id, &provider);
}

void Http2Session::Output(std::string& out) {
  if (in_nghttp2_ || lost_ || serialised_to_ != nullptr) return;
  if (out.empty() && out.capacity() < output_.size()) {
    out.swap(output_);
  } else {
    out.append(output_);
  }
  std::string().swap(output_);  // an idle session keeps no buffer
  Serialise(out);
  ++outputs_;
}

bool Http2Session::wants_write() const {
  return !lost_ && (!output_.empty() || nghttp2_session_want_write(nghttp2_) ||
                    (error_.ok() && (!opened_.empty() || !granted_.empty())));
}

// The order matters. HEADERS come first: nghttp2 silently drops a window update of a stream that it has not opened.
// DATA follows, and grants come last, when nghttp2's queue is empty: BeforeFrameSend recognises them by that.
void Http2Session::Serialise(std::string& out) {
  serialised_to_ = &out;
  for (;;) {
    SerialiseFrames();
    if (lost_ || !error_.ok() || output_is_full()) break;
    if (!opened_.empty()) {
      StartOpened();
    } else if (!granted_.empty()) {
      SubmitGrants();
    } else if (!writable_.empty()) {
      TellWritable();
    } else {
      break;
    }
  }
  serialised_to_ = nullptr;
}

void Http2Session::SerialiseFrames() {
  in_nghttp2_ = true;
  for (;;) {
    const uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(nghttp2_, &bytes);
    if (size < 0 && !lost_) {
      Fail(absl::InternalError(absl::StrCat("nghttp2_session_mem_send: ", nghttp2_strerror(static_cast<int>(size)))));
    }
    if (size <= 0 || lost_) break;
    serialised_to_->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
  in_nghttp2_ = false;
}

void Http2Session::StartOpened() {
  for (const int32_t id : std::exchange(opened_, {})) {
    Http2Stream* stream = Find(id);
    if (stream == nullptr) continue;
    if (nghttp2_session_find_stream(nghttp2_, id) == nullptr) {
      // Reset the stream: the server has lowered MAX_CONCURRENT_STREAMS since Open, and nghttp2 would send the request
      // later.
      nghttp2_session_set_stream_user_data(nghttp2_, id, nullptr);
      nghttp2_submit_rst_stream(nghttp2_, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
      Close(id, {StreamEnd::Kind::kUnhandled, Http2Error::kRefusedStream});
      if (lost_) return;
      continue;
    }
    stream->opened = true;
    stream->output_after = outputs_;
    if (stream->sends_data) {
      SubmitData(id);
    } else if (std::exchange(stream->sends_trailers, false)) {
      SubmitHeaders(id, std::exchange(stream->trailers, {}), true);
    }
  }
  if (out_of_streams()) events_.OnSlots();  // once: no other stream is opened
}

void Http2Session::SubmitGrants() {
  for (const int32_t id : std::exchange(granted_, {})) {
    Http2Stream* stream = Find(id);
    // A side that has ended its stream needs no window, and a frame would only wake it.
    if (stream == nullptr || stream->was_reset || stream->received_end) continue;
    const uint64_t bytes = std::exchange(stream->grant_bytes, 0);
    constexpr uint64_t kMaxWindow = (1u << 31) - 1;
    stream->grant_is_next = true;
    if (bytes > kMaxWindow ||
        nghttp2_submit_window_update(nghttp2_, NGHTTP2_FLAG_NONE, id, static_cast<int32_t>(bytes)) != 0) {
      Reset(id, Http2Error::kFlowControlError);  // a window has 31 bits
    }
  }
}

void Http2Session::TellWritable() {
  for (const int32_t id : std::exchange(writable_, {})) {
    Http2Stream* stream = Find(id);
    if (stream == nullptr || stream->was_reset) continue;
    stream->events.OnWritable();
    if (lost_) return;
  }
}

}  // namespace sluice
