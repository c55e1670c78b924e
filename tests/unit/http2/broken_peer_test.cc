// Tests peers that break the protocol or exceed a bound.
#include <algorithm>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/http2/raw_server.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Kind = StreamEnd::Kind;

constexpr uint32_t kProtocolError = 1;
constexpr uint32_t kFrameSizeError = 6;
constexpr uint32_t kCompressionError = 9;
constexpr uint32_t kEnhanceYourCalm = 11;

// The connection must end with this error, Lose must report it to an open stream, and later bytes must be ignored.
void ExpectConnectionError(const std::string& bytes, uint32_t error, const std::string& text,
                           const std::string& first_bytes = raw::Settings() + raw::SettingsAck()) {
  SCOPED_TRACE(text);
  RawServer server({.stream_window_bytes = 6}, first_bytes);
  RecordedStream call;
  const int32_t id = server.Open(call);
  const absl::Status status = server.client->Receive(bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  EXPECT_EQ(server.client->open_slots(), 0);
  EXPECT_TRUE(server.client->going_away());
  EXPECT_EQ(server.client->Receive(raw::Headers(id, ResponseHeaders(), true)), status);
  EXPECT_TRUE(server.client->wants_write());
  const auto frames = server.Hear();
  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(frames.back().type, raw::kGoAway);
  EXPECT_EQ(frames.back().number(4), error);
  EXPECT_FALSE(server.client->wants_write());
  EXPECT_THAT(call.headers, IsEmpty());
  server.client->Lose();
  EXPECT_TRUE(call.is(Kind::kLost));
}

TEST(BrokenPeer, ConnectionErrorsAreToldToBothSides) {
  ExpectConnectionError("HTTP/1.1 400 Bad Request\r\n\r\n", kFrameSizeError, "FRAME_SIZE_ERROR");
  ExpectConnectionError("HTTP/1.1 400 Bad Request\r\n\r\n", kProtocolError, "SETTINGS expected", "");
  ExpectConnectionError(raw::Ping(), kProtocolError, "SETTINGS expected", "");
  ExpectConnectionError(raw::Data(0, "x"), kProtocolError, "PROTOCOL_ERROR");
  ExpectConnectionError(raw::Data(9, "x"), kProtocolError, "PROTOCOL_ERROR");
  ExpectConnectionError(raw::Headers(9, ResponseHeaders()), kProtocolError, "PROTOCOL_ERROR");
  ExpectConnectionError(raw::Headers(2, ResponseHeaders()), kProtocolError, "PROTOCOL_ERROR");
  ExpectConnectionError(raw::WindowUpdate(0, 0), kProtocolError, "PROTOCOL_ERROR");
  ExpectConnectionError(raw::WindowUpdate(1, 0), kProtocolError, "window_size_increment == 0");
  ExpectConnectionError(raw::WindowUpdate(0, 0x7fffffff), 3, "FLOW_CONTROL_ERROR");
  ExpectConnectionError(raw::Settings({{raw::kInitialWindowSize, 1u << 31}}), 3, "FLOW_CONTROL_ERROR");
  ExpectConnectionError(raw::Frame(raw::kHeaders, raw::kEndHeaders, 1, "\xff\xff\xff\xff\xff"), kCompressionError,
                        "COMPRESSION_ERROR");
  ExpectConnectionError(raw::Frame(raw::kData, 0, 1, std::string(16385, 'x')), kFrameSizeError, "FRAME_SIZE_ERROR");
  ExpectConnectionError(raw::Frame(raw::kContinuation, raw::kEndHeaders, 1, ""), kProtocolError, "PROTOCOL_ERROR");
  ExpectConnectionError(
      raw::Frame(raw::kPushPromise, raw::kEndHeaders, 1, raw::Number(2, 4) + raw::HeaderBlock(RequestHeaders())),
      kProtocolError, "PUSH_PROMISE");
}

TEST(BrokenPeer, StreamErrorsLeaveTheConnectionAlone) {
  const std::vector<std::string> broken = {
      raw::Headers(1, {{"content-type", "x"}}),                                   // no :status
      raw::Headers(1, {{":status", "2000"}}),                                     // more than three digits
      raw::Headers(1, {{":status", "200"}, {"Upper", "x"}}),                      // RFC 9113, section 8.2.1
      raw::Headers(1, {{":status", "200"}, {"connection", "close"}}),             // section 8.2.2
      raw::Headers(1, {{":status", "100"}}, true),                                // an interim response with END_STREAM
      raw::Headers(1, ResponseHeaders()) + raw::Headers(1, {{"a", "b"}}, false),  // trailers without END_STREAM
      raw::Headers(1, {{":status", "200"}, {"content-length", "2"}}) + raw::Data(1, "abc", true),
      raw::Headers(1, {{":status", "200"}, {"content-length", "2"}}) + raw::Data(1, "a", true),
  };
  for (const std::string& bytes : broken) {
    SCOPED_TRACE(testing::PrintToString(bytes));
    RawServer server;
    RecordedStream call, other;
    server.Open(call);
    const int32_t other_id = server.Open(other);
    server.Say(bytes);
    EXPECT_TRUE(call.is(Kind::kReset, Http2Error::kProtocolError));
    EXPECT_EQ(call.ends, 0);
    const auto frames = server.Hear();
    ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kRstStream));
    EXPECT_EQ(frames[0].stream, 1);
    server.Say(raw::Headers(other_id, ResponseHeaders(), true));
    EXPECT_TRUE(other.is(Kind::kComplete));
  }
}

TEST(BrokenPeer, FramesOfAStreamThatWasResetAreIgnored) {
  RawServer server;
  RecordedStream call;
  const int32_t id = server.Open(call);
  server.client->Reset(id, Http2Error::kCancel);
  server.Hear();
  EXPECT_TRUE(call.is(Kind::kReset, Http2Error::kCancel));
  server.Say(raw::Headers(id, ResponseHeaders()) + raw::Data(id, "12345") + raw::WindowUpdate(id, 10) +
             raw::Headers(id, Trailers(), true) + raw::RstStream(id, 8));
  EXPECT_THAT(server.Hear(), IsEmpty());
}

TEST(BrokenPeer, HeaderListIsBounded) {
  // ":status" takes 42, "x" 33 plus its value: 1000 in total.
  const auto headers = [](size_t value_bytes) {
    return HeaderList{{":status", "200"}, {"x", std::string(value_bytes, 'v')}};
  };
  RawServer server({.max_header_list_bytes = 1000});
  RecordedStream fits, exceeds, trailers_exceed, after;
  const int32_t fits_id = server.Open(fits), exceeds_id = server.Open(exceeds);
  const int32_t trailers_id = server.Open(trailers_exceed), after_id = server.Open(after);
  server.Say(raw::Headers(fits_id, headers(925), true));
  EXPECT_TRUE(fits.is(Kind::kComplete));

  server.Say(raw::Headers(exceeds_id, headers(926), true));
  EXPECT_TRUE(exceeds.is(Kind::kReset, Http2Error::kEnhanceYourCalm));
  EXPECT_EQ(exceeds.closed[0].exceeded_header_list_bytes, 1000u);
  EXPECT_THAT(exceeds.headers, IsEmpty());
  auto frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kRstStream));
  EXPECT_EQ(frames[0].number(), kEnhanceYourCalm);

  server.Say(raw::Headers(trailers_id, headers(10)) + raw::Headers(trailers_id, {{"x", std::string(968, 'v')}}, true));
  EXPECT_TRUE(trailers_exceed.is(Kind::kReset, Http2Error::kEnhanceYourCalm));
  EXPECT_EQ(trailers_exceed.headers.size(), 1);
  server.Hear();

  server.Say(raw::Headers(after_id, headers(100), true));
  EXPECT_TRUE(after.is(Kind::kComplete));
}

// The header block is small on the wire and large once decoded: it repeats one entry of the table thousands of times.
TEST(BrokenPeer, HeaderListIsBoundedAsDecoded) {
  RawServer server;
  RecordedStream bomb, after;
  const int32_t id = server.Open(bomb), after_id = server.Open(after);
  const std::string field = "\x40" + raw::HpackString("x") + raw::HpackString(std::string(4000, 'v'));
  const std::string block = "\x88" + field + std::string(12'000, '\xbe');  // index 62: the newest entry
  server.Say(raw::Frame(raw::kHeaders, raw::kEndHeaders | raw::kEndStream, id, block));
  EXPECT_TRUE(bomb.is(Kind::kReset, Http2Error::kEnhanceYourCalm));
  EXPECT_THAT(bomb.headers, IsEmpty());
  // The dynamic table is still in sync.
  server.Say(raw::Frame(raw::kHeaders, raw::kEndHeaders | raw::kEndStream, after_id, "\x88\xbe"));
  EXPECT_THAT(after.headers, ElementsAre(HeaderList{{":status", "200"}, {"x", std::string(4000, 'v')}}));
}

TEST(BrokenPeer, EndlessContinuationsEndTheConnection) {
  std::string flood = raw::Frame(raw::kHeaders, raw::kNone, 1, raw::HeaderBlock(ResponseHeaders()));
  for (int i = 0; i < 100; ++i) flood += raw::Frame(raw::kContinuation, raw::kNone, 1, "");
  ExpectConnectionError(flood, kEnhanceYourCalm, "CONTINUATION");
}

TEST(BrokenPeer, PingsThatNobodyReadsEndTheConnection) {
  std::string flood;
  for (int i = 0; i < 1001; ++i) flood += raw::Ping();
  ExpectConnectionError(flood, kEnhanceYourCalm, "HTTP/2 connection");
  RawServer server;
  for (int i = 0; i < 5000; ++i) {
    server.Say(raw::Ping());
    EXPECT_EQ(server.Hear().size(), 1);
  }
}

TEST(BrokenPeer, SettingsThatAreTooManyEndTheConnection) {
  ExpectConnectionError(raw::Settings(std::vector<std::pair<uint16_t, uint32_t>>(33, {99, 1})), kEnhanceYourCalm,
                        "SETTINGS");
}

TEST(BrokenPeer, ServerEndsAConnectionThatIsNoHttp2) {
  RecordedSession events;
  const auto server = *Http2Session::Create({.side = Http2Session::Side::kServer}, events);
  const absl::Status status = server->Receive("GET / HTTP/1.1\r\nHost: worker\r\n\r\n");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("magic"));
  EXPECT_THAT(raw::Types(raw::OutputFrames(*server)), Contains(raw::kGoAway));
}

TEST(BrokenPeer, ServerEndsAConnectionThatResetsTooMuch) {
  RecordedSession events;
  const auto server = *Http2Session::Create({.side = Http2Session::Side::kServer}, events);
  absl::Status status = server->Receive(raw::kPreface + raw::Settings());
  int resets = 0;
  for (int32_t id = 1; status.ok() && resets < 20'000; id += 2, ++resets) {
    status = server->Receive(raw::Headers(id, RequestHeaders(), true) + raw::RstStream(id, 8));
  }
  EXPECT_FALSE(status.ok());
  EXPECT_GE(resets, 1000);
  for (const auto& [id, stream] : events.streams) {
    ASSERT_EQ(stream->closed.size(), 1);
    ASSERT_EQ(stream->closed[0].kind, Kind::kReset);
  }
}

TEST(BrokenPeer, ServerRefusesBadRequestsOneByOne) {
  RecordedSession events;
  const auto server = *Http2Session::Create({.side = Http2Session::Side::kServer}, events);
  ASSERT_TRUE(server->Receive(raw::kPreface + raw::Settings()).ok());
  ASSERT_TRUE(server->Receive(raw::Headers(1, {{":method", "POST"}}, true)).ok());  // no :path
  EXPECT_TRUE(events.streams.at(1)->is(Kind::kReset, Http2Error::kProtocolError));
  EXPECT_THAT(events.streams.at(1)->headers, IsEmpty());
  ASSERT_TRUE(server->Receive(raw::Headers(3, RequestHeaders(), true)).ok());
  EXPECT_EQ(events.streams.at(3)->ends, 1);
  EXPECT_THAT(raw::Types(raw::OutputFrames(*server)), Not(Contains(raw::kGoAway)));
}

}  // namespace
}  // namespace sluice
