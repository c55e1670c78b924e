#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "lib/http2/headers.h"
#include "lib/http2/session.h"

// Builds and parses HTTP/2 frames by hand (RFC 9113, section 4), so that tests can check the bytes on the wire and act
// as a peer that breaks the rules.
namespace sluice::raw {

enum Type : uint8_t {
  kData = 0,
  kHeaders = 1,
  kRstStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};
enum Flag : uint8_t { kNone = 0, kAck = 1, kEndStream = 1, kEndHeaders = 4, kPadded = 8 };
enum Setting : uint16_t {
  kHeaderTableSize = 1,
  kEnablePush = 2,
  kMaxConcurrentStreams = 3,
  kInitialWindowSize = 4,
  kMaxFrameSize = 5,
  kMaxHeaderListSize = 6,
};
constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

inline std::string Number(uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

inline std::string Frame(uint8_t type, uint8_t flags, int32_t stream, absl::string_view payload) {
  return absl::StrCat(Number(payload.size(), 3), Number(type, 1), Number(flags, 1), Number(stream, 4), payload);
}
inline std::string Data(int32_t stream, absl::string_view bytes, bool end_stream = false) {
  return Frame(kData, end_stream ? kEndStream : kNone, stream, bytes);
}
// Uses padding + 1 more bytes of the windows than `bytes` has.
inline std::string PaddedData(int32_t stream, absl::string_view bytes, uint8_t padding, bool end_stream = false) {
  return Frame(kData, kPadded | (end_stream ? kEndStream : kNone), stream,
               absl::StrCat(Number(padding, 1), bytes, std::string(padding, '\0')));
}
inline std::string Settings(const std::vector<std::pair<uint16_t, uint32_t>>& settings = {}) {
  std::string payload;
  for (const auto& [id, value] : settings) absl::StrAppend(&payload, Number(id, 2), Number(value, 4));
  return Frame(kSettings, kNone, 0, payload);
}
inline std::string SettingsAck() {
  return Frame(kSettings, kAck, 0, "");
}
inline std::string Ping() {
  return Frame(kPing, kNone, 0, "12345678");
}
inline std::string RstStream(int32_t stream, uint32_t error) {
  return Frame(kRstStream, kNone, stream, Number(error, 4));
}
inline std::string GoAway(int32_t last_stream, uint32_t error = 0) {
  return Frame(kGoAway, kNone, 0, absl::StrCat(Number(last_stream, 4), Number(error, 4)));
}
inline std::string WindowUpdate(int32_t stream, uint32_t bytes) {
  return Frame(kWindowUpdate, kNone, stream, Number(bytes, 4));
}

// Uses HPACK literals without indexing and without Huffman coding (RFC 7541, section 6.2.2).
inline std::string HpackString(absl::string_view text) {
  std::string bytes;
  if (text.size() < 127) {
    bytes = Number(text.size(), 1);
  } else {
    bytes = Number(127, 1);
    size_t rest = text.size() - 127;
    for (; rest >= 128; rest /= 128) bytes.push_back(static_cast<char>(128 + rest % 128));
    bytes.push_back(static_cast<char>(rest));
  }
  return absl::StrCat(bytes, text);
}
inline std::string HeaderBlock(const HeaderList& headers) {
  std::string block;
  for (const HeaderField& field : headers) {
    absl::StrAppend(&block, Number(0, 1), HpackString(field.name), HpackString(field.value));
  }
  return block;
}
inline std::string Headers(int32_t stream, const HeaderList& headers, bool end_stream = false) {
  return Frame(kHeaders, kEndHeaders | (end_stream ? kEndStream : kNone), stream, HeaderBlock(headers));
}

struct ReadFrame {
  uint8_t type;
  uint8_t flags;
  int32_t stream;
  std::string payload;

  // Returns the 32 bits at `offset` of the payload: an error code, or a window's increment.
  uint32_t number(size_t offset = 0) const {
    uint32_t value = 0;
    for (size_t i = offset; i < offset + 4; ++i) value = value << 8 | static_cast<uint8_t>(payload.at(i));
    return value;
  }
};

inline std::vector<ReadFrame> ReadFrames(absl::string_view bytes) {
  std::vector<ReadFrame> frames;
  if (absl::string_view preface(kPreface); bytes.substr(0, preface.size()) == preface) {
    bytes.remove_prefix(preface.size());
  }
  const auto number = [&](size_t offset, size_t size) {
    uint32_t value = 0;
    for (size_t i = offset; i < offset + size; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    return value;
  };
  while (bytes.size() >= 9) {
    const size_t size = number(0, 3);
    EXPECT_LE(9 + size, bytes.size()) << "Output ends within a frame";
    frames.push_back({static_cast<uint8_t>(bytes[3]), static_cast<uint8_t>(bytes[4]),
                      static_cast<int32_t>(number(5, 4)), std::string(bytes.substr(9, size))});
    bytes.remove_prefix(std::min(9 + size, bytes.size()));
  }
  EXPECT_EQ(bytes.size(), 0) << "Output ends within a frame's header";
  return frames;
}

inline std::vector<ReadFrame> OutputFrames(Http2Session& session) {
  std::string bytes;
  session.Output(bytes);
  return ReadFrames(bytes);
}
inline std::vector<uint8_t> Types(const std::vector<ReadFrame>& frames) {
  std::vector<uint8_t> types;
  for (const ReadFrame& frame : frames) types.push_back(frame.type);
  return types;
}

}  // namespace sluice::raw
