#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lib/http2/session.h"

namespace sluice {

// Records the events of one stream in order, and checks the rules for every stream. The hooks run after each event.
struct RecordedStream : StreamEvents {
  std::vector<HeaderList> headers;
  std::vector<size_t> header_bytes;
  std::string data;
  size_t window_bytes = 0;
  int ends = 0;  // events with END_STREAM
  int writable = 0;
  std::vector<StreamEnd> closed;
  std::function<void()> on_headers, on_data, on_writable, on_closed;

  void OnHeaderBytes(size_t wire_bytes) override {
    EXPECT_TRUE(closed.empty());
    header_bytes.push_back(wire_bytes);
  }
  void OnHeaders(HeaderList list, bool end_stream) override {
    Note(end_stream);
    headers.push_back(std::move(list));
    if (on_headers) on_headers();
  }
  void OnData(absl::string_view bytes, size_t window, bool end_stream) override {
    Note(end_stream);
    EXPECT_GE(window, bytes.size());
    data.append(bytes.data(), bytes.size());
    window_bytes += window;
    if (on_data) on_data();
  }
  void OnWritable() override {
    EXPECT_TRUE(closed.empty());
    ++writable;
    if (on_writable) on_writable();
  }
  void OnClosed(StreamEnd end) override {
    EXPECT_TRUE(closed.empty()) << "OnClosed comes once";
    closed.push_back(end);
    if (on_closed) on_closed();
  }

  bool is(StreamEnd::Kind kind, Http2Error error = Http2Error::kNoError) const {
    return closed.size() == 1 && closed[0].kind == kind && closed[0].error == error;
  }

 private:
  void Note(bool end_stream) {
    EXPECT_TRUE(closed.empty()) << "nothing follows OnClosed";
    EXPECT_EQ(ends, 0) << "nothing follows END_STREAM";
    ends += end_stream ? 1 : 0;
  }
};

struct RecordedSession : SessionEvents {
  std::map<int32_t, std::unique_ptr<RecordedStream>> streams;  // streams that the peer has opened
  std::function<bool(int32_t)> accept;
  std::function<void(int32_t, RecordedStream&)> on_stream;
  std::function<void()> on_slots;
  int slots_calls = 0;

  StreamEvents* OnStream(int32_t id) override {
    if (accept && !accept(id)) return nullptr;
    auto& stream = streams[id];
    stream = std::make_unique<RecordedStream>();
    if (on_stream) on_stream(id, *stream);
    return stream.get();
  }
  void OnSlots() override {
    ++slots_calls;
    if (on_slots) on_slots();
  }
};

inline HeaderList RequestHeaders() {
  return {{":method", "POST"}, {":scheme", "http"}, {":path", "/a/B"}, {":authority", "worker:1"}, {"te", "trailers"}};
}
inline HeaderList ResponseHeaders() {
  return {{":status", "200"}, {"content-type", "application/grpc"}};
}
inline HeaderList Trailers() {
  return {{"grpc-status", "0"}};
}

}  // namespace sluice
