#include "lib/http2/http2_stream.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nghttp2/nghttp2.h>

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

uint8_t EndFlag(bool end_stream) {
  return end_stream ? NGHTTP2_FLAG_END_STREAM : NGHTTP2_FLAG_NONE;
}

}  // namespace

int Http2Stream::SubmitOpening(nghttp2_session* nghttp2, const HeaderList& headers, bool end_stream) {
  const std::vector<nghttp2_nv> fields = NameValues(headers);
  const int32_t opened_id =
      nghttp2_submit_headers(nghttp2, EndFlag(end_stream), -1, nullptr, fields.data(), fields.size(), this);
  if (opened_id < 0) return opened_id;
  id = opened_id;
  return 0;
}

void Http2Stream::SubmitHeaders(nghttp2_session* nghttp2, const HeaderList& headers, bool end_stream) const {
  const std::vector<nghttp2_nv> fields = NameValues(headers);
  nghttp2_submit_headers(nghttp2, EndFlag(end_stream), id, nullptr, fields.data(), fields.size(), nullptr);
}

void Http2Stream::SubmitTrailers(nghttp2_session* nghttp2) {
  if (std::exchange(sends_trailers, false)) SubmitHeaders(nghttp2, std::exchange(trailers, {}), true);
}

size_t Http2Stream::SendableBytes(nghttp2_session* nghttp2) const {
  int64_t window = nghttp2_session_get_stream_remote_window_size(nghttp2, id);
  if (window < 0) {  // not opened yet
    window = nghttp2_session_get_remote_settings(nghttp2, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE);
  }
  window = std::min<int64_t>(window, nghttp2_session_get_remote_window_size(nghttp2));
  return static_cast<size_t>(std::max<int64_t>(window, 0));
}

StreamEnd Http2Stream::EndWith(Http2Error error, bool client) const {
  if (was_reset) return {StreamEnd::Kind::kReset, error, true, exceeded_header_list_bytes};
  // The server refused the request by RST_STREAM, or by a GOAWAY whose last stream is lower, or a GOAWAY came before
  // the HEADERS left. Ignore such a code after the server has responded: it did process the request.
  if (client && error == Http2Error::kRefusedStream && !received_any) return {StreamEnd::Kind::kUnhandled, error};
  if (error == Http2Error::kNoError && !received_reset) return {StreamEnd::Kind::kComplete, error};
  return {StreamEnd::Kind::kReset, error, !received_reset};
}

}  // namespace sluice
