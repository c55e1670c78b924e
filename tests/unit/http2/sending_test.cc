// Tests this side's output within the peer's windows.
#include <algorithm>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/http2/raw_server.h"
#include "tests/unit/http2/session_pair.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = StreamEnd::Kind;

TEST(Sending, KeepsWhatTheWindowDoesNotTake) {
  RawServer server({}, raw::Settings({{raw::kInitialWindowSize, 10}}) + raw::SettingsAck());
  RecordedStream call;
  const int32_t id = *server.client->Open(RequestHeaders(), "12345", false, 0, call);
  EXPECT_EQ(*server.client->SendData(id, "67890", false), 0);
  EXPECT_EQ(*server.client->SendData(id, "abcdef", false), 6);
  auto frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kHeaders, raw::kData));
  EXPECT_EQ(frames[1].payload, "1234567890");
  EXPECT_FALSE(server.client->wants_write());

  server.Say(raw::WindowUpdate(id, 4));
  frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kData));
  EXPECT_EQ(frames[0].payload, "abcd");
  EXPECT_EQ(call.writable, 0) << "bytes are kept still";
  EXPECT_EQ(*server.client->SendData(id, "", true), 2);
  server.Say(raw::WindowUpdate(id, 100));
  frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kData));
  EXPECT_EQ(frames[0].payload, "ef");
  EXPECT_EQ(frames[0].flags, raw::kEndStream);
  EXPECT_EQ(call.writable, 0) << "there is nothing more to be written";
}

TEST(Sending, TellsOnceWhatWasKeptHasLeft) {
  RawServer server({}, raw::Settings({{raw::kInitialWindowSize, 10}}) + raw::SettingsAck());
  RecordedStream call;
  const int32_t id = *server.client->Open(RequestHeaders(), "", false, 0, call);
  EXPECT_EQ(*server.client->SendData(id, std::string(15, 'x'), false), 5);
  server.Hear();
  // The callback sends more: the part that fits the window is sent at once.
  call.on_writable = [&] {
    if (call.writable == 1) {
      EXPECT_EQ(*server.client->SendData(id, std::string(100, 'y'), false), 5);
    }
  };
  server.Say(raw::WindowUpdate(id, 100));
  const auto frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kData, raw::kData));
  EXPECT_EQ(frames[0].payload.size() + frames[1].payload.size(), 100);
  EXPECT_EQ(call.writable, 1);
  server.Say(raw::WindowUpdate(id, 5));
  EXPECT_EQ(call.writable, 2);
  EXPECT_EQ(*server.client->SendData(id, "", false), 0);
  server.Say(raw::WindowUpdate(id, 5));
  EXPECT_EQ(call.writable, 2) << "nobody waits";
}

TEST(Sending, AnOutputStopsBehindTheFrameThatFillsIt) {
  RawServer server({.max_output_bytes = 20'000},
                   raw::Settings({{raw::kInitialWindowSize, 60'000}}) + raw::SettingsAck());
  RecordedStream call, other;
  const int32_t id = *server.client->Open(RequestHeaders(), std::string(50'000, 'x'), true, 0, call);
  std::string first;
  server.client->Output(first);
  EXPECT_THAT(raw::Types(raw::ReadFrames(first)), ElementsAre(raw::kHeaders, raw::kData, raw::kData));
  EXPECT_EQ(server.client->unsent_bytes(id), 50'000 - 2 * 16'384);
  EXPECT_TRUE(server.client->wants_write());
  // Other frames do not wait for the DATA.
  server.client->Send(Http2Session::Probe::kPing);
  ASSERT_TRUE(server.client->Open(RequestHeaders(), "", true, 0, other).ok());
  std::string rest;
  server.client->Output(rest);
  EXPECT_THAT(raw::Types(raw::ReadFrames(rest)), ElementsAre(raw::kPing, raw::kHeaders, raw::kData, raw::kData));
  EXPECT_EQ(server.client->unsent_bytes(id), 0U);
  EXPECT_FALSE(server.client->wants_write());
}

// A response waits if the Output is full, and its trailers wait for the end of its DATA.
TEST(Sending, HeadersCountUntilAnOutputHasThem) {
  SessionPair pair({}, {.max_output_bytes = 20'000});
  RecordedStream call;
  const int32_t id = *pair.client->Open(RequestHeaders(), "", true, 1 << 20, call);
  pair.Carry();
  Http2Session& server = *pair.server;
  server.SendHeaders(id, {{":status", "200"}, {"x-large", std::string(1000, 'x')}}, false);
  EXPECT_EQ(server.unsent_header_bytes(id), 7 + 3 + 32 + 7 + 1000 + 32);
  ASSERT_TRUE(server.SendData(id, std::string(30'000, 'x'), false).ok());
  server.SendHeaders(id, {{"grpc-status", "0"}}, true);
  std::string first;
  server.Output(first);
  EXPECT_EQ(server.unsent_header_bytes(id), 11 + 1 + 32);
  std::string rest;
  server.Output(rest);
  EXPECT_EQ(server.unsent_header_bytes(id), 0U);
}

TEST(Sending, AResetDropsWhatItKeepsAtOnce) {
  RawServer server({}, raw::Settings({{raw::kInitialWindowSize, 10}}) + raw::SettingsAck());
  RecordedStream call;
  const int32_t id = *server.client->Open(RequestHeaders(), std::string(30, 'x'), false, 0, call);
  server.Hear();
  EXPECT_EQ(server.client->unsent_bytes(id), 20U);
  server.client->Reset(id, Http2Error::kCancel);
  EXPECT_EQ(server.client->unsent_bytes(id), 0U);
  EXPECT_THAT(raw::Types(server.Hear()), ElementsAre(raw::kRstStream));
  EXPECT_TRUE(call.is(Kind::kReset, Http2Error::kCancel));
}

TEST(Sending, BoundsWhatItKeeps) {
  RawServer server({.max_unsent_bytes_per_stream = 20},
                   raw::Settings({{raw::kInitialWindowSize, 10}}) + raw::SettingsAck());
  RecordedStream call;
  const int32_t id = *server.client->Open(RequestHeaders(), "", false, 0, call);
  EXPECT_EQ(*server.client->SendData(id, std::string(30, 'x'), false), 20);
  const auto refused = server.client->SendData(id, "y", false);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("would keep 21 bytes for a window to open, and max_unsent_bytes_per_stream is 20"));
  server.Hear();
  server.Say(raw::WindowUpdate(id, 21));
  const auto frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kData));
  EXPECT_EQ(frames[0].payload, std::string(20, 'x')) << "nothing of what was refused";
  EXPECT_EQ(*server.client->SendData(id, "zz", true), 1);
}

TEST(Sending, NothingFollowsTheEnd) {
  RawServer server;
  RecordedStream call;
  const int32_t id = *server.client->Open(RequestHeaders(), "all", true, 0, call);
  EXPECT_EQ(server.client->SendData(id, "more", false).status().code(), absl::StatusCode::kFailedPrecondition);
  server.client->SendHeaders(id, Trailers(), true);
  EXPECT_THAT(raw::Types(server.Hear()), ElementsAre(raw::kHeaders, raw::kData));
}

TEST(Sending, ConnectionsWindowHoldsAllStreamsBack) {
  RawServer server;
  RecordedStream calls[2];
  const int32_t first = *server.client->Open(RequestHeaders(), std::string(40000, 'a'), true, 0, calls[0]);
  const int32_t second = *server.client->Open(RequestHeaders(), std::string(40000, 'b'), true, 0, calls[1]);
  size_t sent = 0;
  for (const raw::ReadFrame& frame : server.Hear()) sent += frame.type == raw::kData ? frame.payload.size() : 0;
  EXPECT_EQ(sent, 65535);
  server.Say(raw::WindowUpdate(0, 100000));
  std::map<int32_t, int> ends;
  for (const raw::ReadFrame& frame : server.Hear()) {
    sent += frame.payload.size();
    ends[frame.stream] += frame.flags & raw::kEndStream;
  }
  EXPECT_EQ(sent, 80000);
  EXPECT_THAT(ends, ElementsAre(std::pair(first, 1), std::pair(second, 1)));
}

// Servers on nghttp2 that defer their DATA hold trailers back until the window opens. This server must not.
TEST(Sending, TrailersLeaveWhileTheWindowIsUsedUp) {
  SessionPair pair({.stream_window_bytes = 6});
  pair.Carry();
  RecordedStream call;
  const int32_t id = *pair.client->Open(RequestHeaders(), "", true, 0, call);
  pair.Carry();
  pair.server->SendHeaders(id, ResponseHeaders(), false);
  EXPECT_EQ(*pair.server->SendData(id, "123456", false), 0);
  pair.Carry();
  EXPECT_EQ(call.data, "123456");
  pair.server->SendHeaders(id, Trailers(), true);
  pair.Carry();
  EXPECT_TRUE(call.is(Kind::kComplete));
  EXPECT_EQ(call.headers.size(), 2);
}

TEST(Sending, TrailersWaitForTheDataThatIsKept) {
  SessionPair pair({.stream_window_bytes = 6});
  pair.Carry();
  RecordedStream call;
  const int32_t id = *pair.client->Open(RequestHeaders(), "", true, 0, call);
  pair.Carry();
  pair.server->SendHeaders(id, ResponseHeaders(), false);
  EXPECT_EQ(*pair.server->SendData(id, "1234567890", false), 4);
  pair.server->SendHeaders(id, Trailers(), true);
  pair.Carry();
  EXPECT_EQ(call.headers.size(), 1);
  pair.client->Grant(id, 4);
  pair.Carry();
  EXPECT_EQ(call.data, "1234567890");
  EXPECT_EQ(call.headers.size(), 2);
  EXPECT_TRUE(call.is(Kind::kComplete));
}

TEST(Sending, HeldStreamDoesNotHoldOthers) {
  SessionPair pair({.stream_window_bytes = 5});
  pair.Carry();
  RecordedStream held, open;
  const int32_t held_id = *pair.client->Open(RequestHeaders(), "", true, 0, held);
  const int32_t open_id = *pair.client->Open(RequestHeaders(), "", true, 300'000, open);
  pair.Carry();
  for (const int32_t id : {held_id, open_id}) {
    pair.server->SendHeaders(id, ResponseHeaders(), false);
    ASSERT_TRUE(pair.server->SendData(id, std::string(300'000, 'x'), false).ok());
    pair.server->SendHeaders(id, Trailers(), true);
  }
  pair.Carry();
  EXPECT_EQ(held.data.size(), 5);
  EXPECT_EQ(open.data.size(), 300'000);
  EXPECT_TRUE(open.is(Kind::kComplete));
}

TEST(Sending, HeadersAreBoundedByWhatTheOtherSideTakes) {
  RawServer server({}, raw::Settings({{raw::kMaxHeaderListSize, 300}}) + raw::SettingsAck());
  RecordedStream call;
  HeaderList headers = RequestHeaders();
  headers.push_back({"large", std::string(100, 'x')});
  const absl::Status status = server.client->Open(headers, "", true, 0, call).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "the header list has 356 bytes as HTTP/2 counts them, and the other side takes at most 300");
  EXPECT_TRUE(server.client->Open(RequestHeaders(), "", true, 0, call).ok());
  EXPECT_THAT(raw::Types(server.Hear()), ElementsAre(raw::kHeaders));
}

TEST(Sending, LargeHeadersTakeSeveralFrames) {
  SessionPair pair;
  HeaderList headers = RequestHeaders();
  headers.push_back({"large", std::string(60'000, '%')});
  RecordedStream call;
  const int32_t id = *pair.client->Open(headers, "body", true, 0, call);
  std::string bytes;
  pair.client->Output(bytes);
  const auto types = raw::Types(raw::ReadFrames(bytes));
  EXPECT_GT(std::count(types.begin(), types.end(), raw::kContinuation), 1);
  ASSERT_TRUE(pair.server->Receive(bytes).ok());
  EXPECT_THAT(pair.served(id).headers, ElementsAre(headers));
  headers.back().value.resize(70'000);
  EXPECT_EQ(pair.client->Open(headers, "", true, 0, call).status().code(), absl::StatusCode::kInvalidArgument);

  pair.server->SendHeaders(id, {{":status", "200"}, {"large", std::string(70'000, '%')}}, false);
  pair.Carry();
  EXPECT_TRUE(call.is(Kind::kReset, Http2Error::kInternalError));
}

TEST(Sending, ResetDropsWhatIsKept) {
  RawServer server({}, raw::Settings({{raw::kInitialWindowSize, 10}}) + raw::SettingsAck());
  RecordedStream call;
  const int32_t id = *server.client->Open(RequestHeaders(), std::string(100, 'x'), true, 0, call);
  server.Hear();
  server.client->Reset(id, Http2Error::kCancel);
  EXPECT_THAT(raw::Types(server.Hear()), ElementsAre(raw::kRstStream));
  server.Say(raw::WindowUpdate(id, 1000));
  EXPECT_THAT(server.Hear(), IsEmpty());
  EXPECT_EQ(*server.client->SendData(id, "late", false), 0);
  EXPECT_THAT(server.Hear(), IsEmpty());
}

}  // namespace
}  // namespace sluice
