// Tests the limits on the peer's sending: windows and grants, on the receiving side.
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/http2/raw_server.h"
#include "tests/unit/http2/session_pair.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = StreamEnd::Kind;

TEST(Windows, AreToldBeforeAnythingElse) {
  RawServer server({.stream_window_bytes = 6, .connection_window_bytes = 1u << 20, .max_header_list_bytes = 5000});
  ASSERT_THAT(raw::Types(server.preface), ElementsAre(raw::kSettings, raw::kWindowUpdate));
  std::map<uint32_t, uint32_t> settings;
  const std::string& payload = server.preface[0].payload;
  for (size_t i = 0; i < payload.size(); i += 6) {
    settings[server.preface[0].number(i) >> 16] = server.preface[0].number(i + 2);
  }
  EXPECT_EQ(settings, (std::map<uint32_t, uint32_t>{{raw::kEnablePush, 0},
                                                    {raw::kInitialWindowSize, 6},
                                                    {raw::kMaxFrameSize, 16384},
                                                    {raw::kMaxHeaderListSize, 5000}}));
  EXPECT_EQ(server.preface[1].stream, 0);
  EXPECT_EQ(server.preface[1].number(), (1u << 20) - 65535);
}

TEST(Windows, GrantBeforeTheRequestLeavesInTheSameOutput) {
  RawServer server;
  RecordedStream call;
  const int32_t id = *server.client->Open(RequestHeaders(), "body", true, 1000, call);
  EXPECT_TRUE(server.client->wants_write());
  const auto frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kHeaders, raw::kData, raw::kWindowUpdate));
  EXPECT_EQ(frames[1].payload, "body");
  EXPECT_EQ(frames[1].flags, raw::kEndStream);
  EXPECT_EQ(frames[2].stream, id);
  EXPECT_EQ(frames[2].number(), 1000);
  EXPECT_FALSE(server.client->wants_write());
  EXPECT_THAT(server.Hear(), IsEmpty());
}

TEST(Windows, RequestsOfOneMomentLeaveInOneOutput) {
  RawServer server;
  RecordedStream calls[3];
  for (RecordedStream& call : calls) {
    ASSERT_TRUE(server.client->Open(RequestHeaders(), "body", true, 1000, call).ok());
  }
  std::map<uint8_t, int> types;
  for (const uint8_t type : raw::Types(server.Hear())) ++types[type];
  EXPECT_EQ(types, (std::map<uint8_t, int>{{raw::kHeaders, 3}, {raw::kData, 3}, {raw::kWindowUpdate, 3}}));
}

TEST(Windows, NothingIsGivenBackWithoutAGrant) {
  RawServer server;
  RecordedStream call;
  const int32_t id = server.Open(call);
  server.Say(raw::Headers(id, ResponseHeaders()) + raw::Data(id, "12345"));
  EXPECT_EQ(call.window_bytes, 5);
  EXPECT_FALSE(server.client->wants_write());
  EXPECT_THAT(server.Hear(), IsEmpty());
}

TEST(Windows, GrantIsOneUpdateOfItsSize) {
  RawServer server;
  RecordedStream call;
  const int32_t id = server.Open(call);
  server.Say(raw::Headers(id, ResponseHeaders()) + raw::Data(id, "12345"));
  server.client->Grant(id, 7);
  server.client->Grant(id, 3);
  server.client->Grant(id, 0);
  const auto frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kWindowUpdate)) << "grants of one moment are one frame";
  EXPECT_EQ(frames[0].stream, id);
  EXPECT_EQ(frames[0].number(), 10);
  server.Say(raw::Data(id, "67890abcdef"));  // the spare byte and ten granted bytes
  EXPECT_EQ(call.data, "1234567890abcdef");
  EXPECT_THAT(server.Hear(), IsEmpty());
}

TEST(Windows, DataBeyondTheWindowEndsTheStreamAlone) {
  RawServer server;
  RecordedStream call, other;
  const int32_t id = server.Open(call);
  const int32_t other_id = server.Open(other);
  server.Say(raw::Headers(id, ResponseHeaders()) + raw::Data(id, "1234567"));
  const auto frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kRstStream));
  EXPECT_EQ(frames[0].number(), static_cast<uint32_t>(Http2Error::kFlowControlError));
  EXPECT_TRUE(call.is(Kind::kReset, Http2Error::kFlowControlError));
  server.Say(raw::Headers(other_id, ResponseHeaders(), true));
  EXPECT_TRUE(other.is(Kind::kComplete));
}

TEST(Windows, TrailersNeedNone) {
  RawServer server({.stream_window_bytes = 0});
  RecordedStream call;
  const int32_t id = server.Open(call);
  server.Say(raw::Headers(id, ResponseHeaders()) + raw::Headers(id, Trailers(), true));
  EXPECT_TRUE(call.is(Kind::kComplete));
}

TEST(Windows, PaddingIsChargedAndNotGivenBack) {
  RawServer server({.stream_window_bytes = 300});
  RecordedStream call;
  const int32_t id = server.Open(call);
  server.Say(raw::Headers(id, ResponseHeaders()));
  // With more than half of the window, nghttp2 would send an update on its own.
  server.Say(raw::PaddedData(id, "abcde", 194));
  EXPECT_EQ(call.data, "abcde");
  EXPECT_EQ(call.window_bytes, 200);
  EXPECT_THAT(server.Hear(), IsEmpty());
  server.client->Grant(id, 100);
  auto frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kWindowUpdate));
  EXPECT_EQ(frames[0].number(), 100);
  for (int i = 0; i < 20; ++i) {
    server.Say(raw::PaddedData(id, "", 199));
    server.client->Grant(id, 200);
    frames = server.Hear();
    ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kWindowUpdate));
    EXPECT_EQ(frames[0].number(), 200);
  }
  EXPECT_EQ(call.window_bytes, 4200);
  server.Say(raw::PaddedData(id, "", 10, true));
  EXPECT_EQ(call.window_bytes, 4211);
  EXPECT_TRUE(call.is(Kind::kComplete));
}

TEST(Windows, PaddingThatComesByteForByteIsChargedOnce) {
  RawServer server({.stream_window_bytes = 300});
  RecordedStream call;
  const int32_t id = server.Open(call);
  for (const char byte : raw::Headers(id, ResponseHeaders()) + raw::PaddedData(id, "abc", 200)) {
    server.Say(std::string(1, byte));
  }
  EXPECT_EQ(call.data, "abc");
  EXPECT_EQ(call.window_bytes, 204);
  EXPECT_THAT(server.Hear(), IsEmpty());
}

// Sends 100 MB through a connection window of 64 KB. Updates must come in time and return exactly the used bytes. These
// include padding and the DATA of streams that were reset.
TEST(Windows, ConnectionsIsNeverUsedUp) {
  RawServer server({.stream_window_bytes = 1u << 30, .connection_window_bytes = 65535});
  RecordedStream call;
  call.on_data = [&] { call.data.clear(); };
  const int32_t id = server.Open(call);
  RecordedStream reset_call;
  const int32_t reset_id = server.Open(reset_call);
  server.Say(raw::Headers(id, ResponseHeaders()));
  server.client->Reset(reset_id, Http2Error::kCancel);
  server.Hear();
  int64_t window = 65535, sent = 0, given_back = 0;
  int turn = 0;
  while (sent < 100'000'000) {
    const std::string bytes(16384 - 256, 'x');
    const std::string frame = ++turn % 3 == 0 ? raw::PaddedData(id, bytes, 255)
                              : turn % 3 == 1 ? raw::Data(id, bytes)
                                              : raw::Data(reset_id, bytes);
    window -= static_cast<int64_t>(frame.size()) - 9;
    sent += static_cast<int64_t>(frame.size()) - 9;
    ASSERT_GE(window, 0);
    server.Say(frame);
    for (const raw::ReadFrame& update : server.Hear()) {
      ASSERT_EQ(update.type, raw::kWindowUpdate);
      ASSERT_EQ(update.stream, 0);
      ASSERT_GT(update.number(), 0);
      window += update.number();
      given_back += update.number();
    }
    ASSERT_LE(window, 65535);
  }
  EXPECT_GT(window, 65535 / 2 - 16384);
  EXPECT_EQ(65535 - sent + given_back, window);
}

TEST(Windows, GrantOfAStreamThatEndedIsIgnored) {
  RawServer server;
  RecordedStream ended, half_closed;
  const int32_t id = server.Open(ended);
  const int32_t open_id = *server.client->Open(RequestHeaders(), "", false, 0, half_closed);
  server.Hear();
  server.Say(raw::Headers(id, ResponseHeaders(), true) + raw::Headers(open_id, ResponseHeaders(), true));
  EXPECT_TRUE(ended.is(Kind::kComplete));
  EXPECT_EQ(half_closed.ends, 1);
  EXPECT_THAT(half_closed.closed, IsEmpty()) << "this side has not ended it yet";
  server.client->Grant(id, 10);
  server.client->Grant(open_id, 10);
  server.client->Grant(99, 10);
  EXPECT_THAT(server.Hear(), IsEmpty());
}

// A frame's bytes are reported before its END_STREAM, so the callback grants before the end is known.
TEST(Windows, AGrantForTheLastBytesDoesNotLeave) {
  RawServer server({.stream_window_bytes = 100});
  RecordedStream call;
  const int32_t id = *server.client->Open(RequestHeaders(), "", false, 0, call);
  server.Hear();
  call.on_data = [&] { server.client->Grant(id, 5); };
  server.Say(raw::Headers(id, ResponseHeaders()) + raw::Data(id, "first"));
  EXPECT_THAT(raw::Types(server.Hear()), ElementsAre(raw::kWindowUpdate));
  server.Say(raw::Data(id, "lasts", true));
  EXPECT_EQ(call.ends, 1);
  EXPECT_THAT(server.Hear(), IsEmpty());
}

TEST(Windows, GrantsAboveWhatAWindowHoldsResetTheStream) {
  RawServer server;
  RecordedStream call;
  const int32_t id = server.Open(call);
  server.client->Grant(id, (1u << 31) - 1);
  const auto frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kRstStream));
  EXPECT_TRUE(call.is(Kind::kReset, Http2Error::kFlowControlError));
}

// nghttp2 counts a stream's window from 65,535 until the server has acknowledged SETTINGS.
TEST(Windows, AreExactBeforeSettingsAreAcknowledged) {
  RawServer server({.stream_window_bytes = 6}, raw::Settings());
  RecordedStream call;
  const int32_t id = *server.client->Open(RequestHeaders(), "", true, 100, call);
  auto frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kHeaders, raw::kWindowUpdate));
  EXPECT_EQ(frames[1].number(), 100);
  server.Say(raw::Headers(id, ResponseHeaders()) + raw::Data(id, std::string(106, 'x')) + raw::SettingsAck());
  EXPECT_THAT(server.Hear(), IsEmpty());
  EXPECT_EQ(call.window_bytes, 106);
  server.client->Grant(id, 50);
  server.Hear();
  server.Say(raw::Data(id, std::string(50, 'x')));
  EXPECT_EQ(call.window_bytes, 156);
  server.Say(raw::Data(id, "x"));
  EXPECT_TRUE(call.is(Kind::kReset, Http2Error::kFlowControlError));
}

TEST(Windows, ServerGrantsRequestsAsWell) {
  SessionPair pair({}, {.stream_window_bytes = 10});
  RecordedStream call;
  ASSERT_TRUE(pair.client->Open(RequestHeaders(), std::string(30, 'x'), true, 0, call).ok());
  pair.Carry();
  EXPECT_EQ(pair.served().data.size(), 30) << "sent before the server's SETTINGS came, so within 65,535";
  RecordedStream second;
  const int32_t id = *pair.client->Open(RequestHeaders(), std::string(30, 'x'), true, 0, second);
  pair.Carry();
  EXPECT_EQ(pair.served(id).data.size(), 10);
  pair.server->Grant(id, 15);
  pair.Carry();
  EXPECT_EQ(pair.served(id).data.size(), 25);
  EXPECT_EQ(pair.served(id).ends, 0);
  pair.server->Grant(id, 15);
  pair.Carry();
  EXPECT_EQ(pair.served(id).data.size(), 30);
  EXPECT_EQ(pair.served(id).ends, 1);
}

}  // namespace
}  // namespace sluice
