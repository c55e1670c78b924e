#pragma once

#include <nghttp2/nghttp2.h>

#include "lib/http2/session.h"

namespace sluice {

// The functions that nghttp2 calls while it parses and serialises. After a call of StreamEvents or SessionEvents they
// touch nothing of a stream, since that call may have called Lose.
struct Http2Session::Callbacks {
  static void Register(nghttp2_session_callbacks* callbacks);

  // If an event has called Lose, nghttp2 gives up the rest of the input.
  static int Done(const Http2Session& session) { return session.lost_ ? NGHTTP2_ERR_CALLBACK_FAILURE : 0; }
  // Returns null if the stream has no receiver of its events.
  static Http2Stream* StreamOf(const Http2Session& session, int32_t id);

  static int OnBeginHeaders(nghttp2_session*, const nghttp2_frame* frame, void* user_data);
  static int OnHeader(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_bytes,
                      const uint8_t* value, size_t value_bytes, uint8_t flags, void* user_data);
  static int OnDataChunk(nghttp2_session*, uint8_t flags, int32_t id, const uint8_t* data, size_t bytes,
                         void* user_data);
  static int OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* user_data);
  static int OnStreamClose(nghttp2_session*, int32_t id, uint32_t error_code, void* user_data);
  static int BeforeFrameSend(nghttp2_session*, const nghttp2_frame* frame, void* user_data);
  static int OnFrameSend(nghttp2_session*, const nghttp2_frame* frame, void* user_data);
  static ssize_t ReadData(nghttp2_session*, int32_t id, uint8_t* buffer, size_t bytes, uint32_t* flags,
                          nghttp2_data_source* source, void* user_data);
  static int SendDataFrame(nghttp2_session*, nghttp2_frame* frame, const uint8_t* frame_header, size_t bytes,
                           nghttp2_data_source* source, void* user_data);

 private:
  static int OnHeaderBlock(Http2Session& session, const nghttp2_frame& frame);
};

}  // namespace sluice
