// Tests the limits on opening streams: slots, GOAWAY, refusals.
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

TEST(Slots, AreAHundredBeforeSettingsAndThenTheServers) {
  RecordedSession events;
  const auto client = *Http2Session::Create({}, events);
  EXPECT_EQ(client->open_slots(), 100);
  ASSERT_TRUE(client->Receive(raw::Settings({{raw::kMaxConcurrentStreams, 250}})).ok());
  EXPECT_EQ(client->open_slots(), 250);
  EXPECT_EQ(events.slots_calls, 1);
  ASSERT_TRUE(client->Receive(raw::Settings({{raw::kMaxConcurrentStreams, 30}})).ok());
  EXPECT_EQ(client->open_slots(), 30);
  EXPECT_EQ(events.slots_calls, 1) << "fewer are no news to somebody who waits";
  ASSERT_TRUE(client->Receive(raw::Settings({{raw::kMaxConcurrentStreams, 31}})).ok());
  EXPECT_EQ(events.slots_calls, 2);
}

TEST(Slots, AreTakenByOpenStreams) {
  RawServer server({}, raw::Settings({{raw::kMaxConcurrentStreams, 2}}) + raw::SettingsAck());
  RecordedStream first, second, third;
  const int32_t id = server.Open(first);
  ASSERT_TRUE(server.client->Open(RequestHeaders(), "", true, 0, second).ok());
  EXPECT_EQ(server.client->open_slots(), 0);
  const absl::Status refused = server.client->Open(RequestHeaders(), "", true, 0, third).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(), "no stream can be opened: 2 are open, the other side allows 2");
  first.on_closed = [&] { EXPECT_TRUE(server.client->Open(RequestHeaders(), "", true, 0, third).ok()); };
  const int slots_calls = server.events.slots_calls;
  server.Say(raw::Headers(id, ResponseHeaders(), true));
  EXPECT_EQ(server.events.slots_calls, slots_calls + 1) << "whoever waits for a stream hears that one has closed";
  EXPECT_EQ(server.client->streams(), 2);
  EXPECT_THAT(raw::Types(server.Hear()), ElementsAre(raw::kHeaders, raw::kHeaders));
}

// The server lowers MAX_CONCURRENT_STREAMS between Open and Output. nghttp2 alone would delay the request without an
// event.
TEST(Slots, TakenAwayBeforeTheRequestLeavesMakeItUnhandled) {
  RawServer server;
  RecordedStream first, second, third;
  const int32_t id = server.Open(first);
  const int32_t second_id = *server.client->Open(RequestHeaders(), "body", true, 10, second);
  server.Say(raw::Settings({{raw::kMaxConcurrentStreams, 1}}));
  EXPECT_TRUE(second.is(Kind::kUnhandled, Http2Error::kRefusedStream));
  EXPECT_THAT(raw::Types(server.Hear()), ElementsAre(raw::kSettings));
  server.Say(raw::Headers(id, ResponseHeaders(), true));
  EXPECT_TRUE(first.is(Kind::kComplete));
  EXPECT_THAT(server.Hear(), IsEmpty()) << "the request is not sent later";
  EXPECT_EQ(server.client->open_slots(), 1);
  EXPECT_GT(*server.client->Open(RequestHeaders(), "", true, 0, third), second_id);
  EXPECT_THAT(raw::Types(server.Hear()), ElementsAre(raw::kHeaders));
}

TEST(Slots, GoAwayTakesThemAll) {
  RawServer server;
  RecordedStream calls[3];
  int32_t ids[3];
  for (int i = 0; i < 3; ++i) ids[i] = server.Open(calls[i]);
  const int slots_calls = server.events.slots_calls;
  server.Say(raw::GoAway(ids[1]));
  EXPECT_EQ(server.events.slots_calls, slots_calls + 2) << "it takes them away, and a stream has closed";
  EXPECT_TRUE(server.client->going_away());
  EXPECT_EQ(server.client->open_slots(), 0);
  EXPECT_TRUE(calls[2].is(Kind::kUnhandled, Http2Error::kRefusedStream));
  EXPECT_EQ(server.client->streams(), 2);
  for (int i = 0; i < 2; ++i) server.Say(raw::Headers(ids[i], ResponseHeaders(), true));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(calls[i].is(Kind::kComplete));
  EXPECT_EQ(server.client->streams(), 0);
}

TEST(Slots, GoAwayInTwoStepsLosesNothing) {
  RawServer server;
  RecordedStream call, late;
  const int32_t id = server.Open(call);
  ASSERT_TRUE(server.client->Open(RequestHeaders(), "", true, 0, late).ok());  // not sent yet
  server.Say(raw::GoAway(2147483647));
  EXPECT_THAT(call.closed, IsEmpty());
  EXPECT_TRUE(late.is(Kind::kUnhandled, Http2Error::kRefusedStream));
  server.Say(raw::GoAway(id));
  EXPECT_THAT(call.closed, IsEmpty());
  server.Say(raw::Headers(id, ResponseHeaders(), true));
  EXPECT_TRUE(call.is(Kind::kComplete));
}

TEST(Slots, RefusedStreamIsUnhandled) {
  RawServer server;
  RecordedStream call;
  const int32_t id = server.Open(call);
  server.Say(raw::RstStream(id, 7));
  EXPECT_TRUE(call.is(Kind::kUnhandled, Http2Error::kRefusedStream));
}

TEST(Slots, RefusalAfterAnAnswerIsNotBelieved) {
  RawServer server;
  RecordedStream call;
  const int32_t id = server.Open(call);
  server.Say(raw::Headers(id, ResponseHeaders()) + raw::RstStream(id, 7));
  EXPECT_TRUE(call.is(Kind::kReset, Http2Error::kRefusedStream));
}

// By RFC 9113, section 5.1.1, a connection has 2^30 numbers for streams of the client, and cannot reuse a number.
TEST(Slots, AConnectionGoesAwayWithItsLastNumber) {
  RawServer server({.first_stream = 2147483645});
  RecordedStream calls[3];
  EXPECT_EQ(server.client->open_slots(), 2);
  const int32_t id = server.Open(calls[0]);
  EXPECT_FALSE(server.client->going_away());
  const int slots_calls = server.events.slots_calls;
  ASSERT_EQ(*server.client->Open(RequestHeaders(), "", true, 0, calls[1]), 2147483647);
  EXPECT_TRUE(server.client->going_away());
  EXPECT_TRUE(server.client->out_of_streams());
  EXPECT_EQ(server.client->open_slots(), 0);
  EXPECT_EQ(server.client->Open(RequestHeaders(), "", true, 0, calls[2]).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(raw::Types(server.Hear()), ElementsAre(raw::kHeaders));
  EXPECT_EQ(server.events.slots_calls, slots_calls + 1) << "with the request";
  for (const int32_t stream : {2147483647, id}) server.Say(raw::Headers(stream, ResponseHeaders(), true));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(calls[i].is(Kind::kComplete)) << i;
}

TEST(Slots, TheFirstStreamIsChecked) {
  RecordedSession events;
  for (const uint32_t first : {0u, 2u, 2147483648u}) {
    EXPECT_EQ(Http2Session::Create({.first_stream = first}, events).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(Slots, ServerRefusesAStream) {
  SessionPair pair;
  pair.server_events.accept = [](int32_t id) { return id != 3; };
  RecordedStream calls[3];
  for (RecordedStream& call : calls) {
    ASSERT_TRUE(pair.client->Open(RequestHeaders(), "body", true, 0, call).ok());
  }
  pair.Carry();
  EXPECT_TRUE(calls[1].is(Kind::kUnhandled, Http2Error::kRefusedStream));
  EXPECT_EQ(pair.server->streams(), 2);
  EXPECT_EQ(pair.served(1).data, "body");
  EXPECT_EQ(pair.served(5).data, "body");
}

TEST(Slots, ServerBoundsThem) {
  SessionPair pair({}, {.max_concurrent_streams = 3});
  pair.Carry();
  EXPECT_EQ(pair.client->open_slots(), 3);
  RecordedStream calls[5];
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(pair.client->Open(RequestHeaders(), "", true, 0, calls[i]).ok(), i < 3);
  }
  pair.Carry();
  EXPECT_EQ(pair.server->streams(), 3);
}

// A client may exceed the bound before it has received it. The server then refuses the streams above it.
TEST(Slots, AboveTheServersBoundAreUnhandled) {
  SessionPair pair({}, {.max_concurrent_streams = 3});
  RecordedStream calls[5];
  for (RecordedStream& call : calls) ASSERT_TRUE(pair.client->Open(RequestHeaders(), "", true, 0, call).ok());
  SessionPair::CarryOnce(*pair.client, *pair.server);
  pair.Carry();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(calls[i].is(Kind::kUnhandled, Http2Error::kRefusedStream), i >= 3) << i;
}

TEST(Slots, ClientGoingAwayFinishesItsStreams) {
  RawServer server;
  RecordedStream call, late;
  const int32_t id = server.Open(call);
  server.client->GoAway(Http2Error::kNoError);
  EXPECT_TRUE(server.client->going_away());
  const absl::Status refused = server.client->Open(RequestHeaders(), "", true, 0, late).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("going away"));
  EXPECT_THAT(raw::Types(server.Hear()), ElementsAre(raw::kGoAway));
  server.Say(raw::Headers(id, ResponseHeaders()) + raw::Data(id, "abc", true));
  EXPECT_EQ(call.data, "abc");
  EXPECT_TRUE(call.is(Kind::kComplete));
}

TEST(Slots, ServerGoingAwayFinishesItsStreams) {
  SessionPair pair;
  RecordedStream call, late;
  const int32_t id = *pair.client->Open(RequestHeaders(), "", true, 0, call);
  pair.Carry();
  const int32_t late_id = *pair.client->Open(RequestHeaders(), "", true, 0, late);
  pair.server->GoAway(Http2Error::kNoError);
  std::string crossing;
  pair.client->Output(crossing);
  pair.Carry();
  ASSERT_TRUE(pair.server->Receive(crossing).ok());
  EXPECT_EQ(pair.server_events.streams.count(late_id), 0);
  EXPECT_TRUE(late.is(Kind::kUnhandled, Http2Error::kRefusedStream));
  pair.server->SendHeaders(id, ResponseHeaders(), true);
  pair.Carry();
  EXPECT_TRUE(call.is(Kind::kComplete));
  EXPECT_TRUE(pair.served(id).is(Kind::kComplete));
}

TEST(Slots, ServerHasNone) {
  SessionPair pair;
  RecordedStream call;
  EXPECT_EQ(pair.server->open_slots(), 0);
  EXPECT_EQ(pair.server->Open(RequestHeaders(), "", true, 0, call).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace sluice
