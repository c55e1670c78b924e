#include "lib/http2/session.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/http2/raw_server.h"
#include "tests/unit/http2/session_pair.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;
using Kind = StreamEnd::Kind;

TEST(Http2Session, CarriesACallBothWays) {
  SessionPair pair;
  RecordedStream call;
  const int32_t id = *pair.client->Open(RequestHeaders(), "request", true, 0, call);
  pair.Carry();
  EXPECT_EQ(pair.served().headers, std::vector<HeaderList>{RequestHeaders()});
  EXPECT_EQ(pair.served().data, "request");
  EXPECT_EQ(pair.served().ends, 1);

  pair.server->SendHeaders(id, ResponseHeaders(), false);
  EXPECT_EQ(*pair.server->SendData(id, "response", false), 0);
  pair.server->SendHeaders(id, Trailers(), true);
  pair.Carry();
  EXPECT_THAT(call.headers, ElementsAre(ResponseHeaders(), Trailers()));
  EXPECT_EQ(call.data, "response");
  EXPECT_EQ(call.window_bytes, 8);
  EXPECT_EQ(call.ends, 1);
  EXPECT_TRUE(call.is(Kind::kComplete));
  EXPECT_TRUE(pair.served().is(Kind::kComplete));
  EXPECT_EQ(pair.client->streams(), 0);
  EXPECT_EQ(pair.server->streams(), 0);
}

TEST(Http2Session, WritesPrefaceAndSettingsFirst) {
  RecordedSession events;
  const auto client = *Http2Session::Create({}, events);
  EXPECT_TRUE(client->wants_write());
  std::string bytes = "before ";
  client->Output(bytes);
  EXPECT_THAT(bytes, StartsWith(absl::StrCat("before ", raw::kPreface)));
  EXPECT_FALSE(client->wants_write());
}

TEST(Http2Session, EmptyDataFrameEndsAStream) {
  RawServer server;
  RecordedStream call;
  const int32_t id = server.Open(call);
  server.Say(raw::Headers(id, ResponseHeaders()) + raw::Data(id, "abc"));
  EXPECT_EQ(call.ends, 0);
  server.Say(raw::Data(id, "", true));
  EXPECT_EQ(call.ends, 1);
  EXPECT_EQ(call.data, "abc");
  EXPECT_EQ(call.window_bytes, 3);
  EXPECT_TRUE(call.is(Kind::kComplete));
}

TEST(Http2Session, BothSidesEndOnTheirOwn) {
  SessionPair pair;
  RecordedStream call;
  const int32_t id = *pair.client->Open(RequestHeaders(), "", false, 0, call);
  pair.Carry();
  EXPECT_EQ(pair.served().headers.size(), 1);
  EXPECT_EQ(pair.served().ends, 0);
  pair.server->SendHeaders(id, ResponseHeaders(), false);
  pair.server->SendHeaders(id, Trailers(), true);
  pair.Carry();
  EXPECT_EQ(call.ends, 1);
  EXPECT_THAT(call.closed, IsEmpty());
  EXPECT_EQ(*pair.client->SendData(id, "late", true), 0);
  pair.Carry();
  EXPECT_EQ(pair.served().data, "late");
  EXPECT_EQ(pair.served().ends, 1);
  EXPECT_TRUE(call.is(Kind::kComplete));
  EXPECT_TRUE(pair.served().is(Kind::kComplete));
}

TEST(Http2Session, RequestMayEndWithAnEmptyDataFrameOrTrailers) {
  SessionPair pair;
  RecordedStream with_data, with_trailers, with_both;
  const int32_t data_id = *pair.client->Open(RequestHeaders(), "", false, 0, with_data);
  const int32_t trailers_id = *pair.client->Open(RequestHeaders(), "", false, 0, with_trailers);
  const int32_t both_id = *pair.client->Open(RequestHeaders(), "body", false, 0, with_both);
  EXPECT_EQ(*pair.client->SendData(data_id, "", true), 0);
  pair.client->SendHeaders(trailers_id, {{"last", "1"}}, true);
  pair.client->SendHeaders(both_id, {{"last", "1"}}, true);
  pair.Carry();
  for (const int32_t id : {data_id, trailers_id, both_id}) EXPECT_EQ(pair.served(id).ends, 1) << id;
  EXPECT_EQ(pair.served(trailers_id).headers.size(), 2);
  EXPECT_EQ(pair.served(both_id).headers.size(), 2);
  EXPECT_EQ(pair.served(both_id).data, "body");
}

TEST(Http2Session, LeavesInterimResponsesOut) {
  RawServer server;
  RecordedStream call;
  const int32_t id = server.Open(call);
  server.Say(raw::Headers(id, {{":status", "100"}}) + raw::Headers(id, {{":status", "103"}, {"link", "x"}}));
  EXPECT_THAT(call.headers, IsEmpty());
  server.Say(raw::Headers(id, ResponseHeaders()) + raw::Headers(id, Trailers(), true));
  EXPECT_THAT(call.headers, ElementsAre(ResponseHeaders(), Trailers()));
}

// gRPC's servers keep the spaces of a grpc-message, and applications send metadata with spaces.
TEST(Http2Session, SpaceAroundAValueIsKept) {
  const HeaderList fields = {{"grpc-message", "lost: "}, {"x-tabs", "\t a \t"}, {"x-space", " "}};
  const auto with_fields = [&](HeaderList list) {
    list.insert(list.end(), fields.begin(), fields.end());
    return list;
  };
  SessionPair pair;
  RecordedStream call;
  const int32_t id = *pair.client->Open(with_fields(RequestHeaders()), "", true, 0, call);
  pair.Carry();
  EXPECT_EQ(pair.served().headers.at(0), with_fields(RequestHeaders()));
  pair.server->SendHeaders(id, with_fields(ResponseHeaders()), false);
  pair.server->SendHeaders(id, with_fields(Trailers()), true);
  pair.Carry();
  EXPECT_THAT(call.headers, ElementsAre(with_fields(ResponseHeaders()), with_fields(Trailers())));
}

TEST(Http2Session, ReportsWhatHeadersTakeOfTheConnection) {
  SessionPair pair;
  RecordedStream call;
  const int32_t id = *pair.client->Open(RequestHeaders(), "", true, 0, call);
  pair.Carry();
  const auto send = [&](const HeaderList& headers, bool end_stream) {
    pair.server->SendHeaders(id, headers, end_stream);
    std::string bytes;
    pair.server->Output(bytes);
    EXPECT_TRUE(pair.client->Receive(bytes).ok());
    return bytes.size();
  };
  const size_t interim_bytes = send({{":status", "103"}, {"link", "x"}}, false);
  const size_t head_bytes = send(ResponseHeaders(), false);
  EXPECT_THAT(call.header_bytes, ElementsAre(interim_bytes, head_bytes));
  constexpr size_t kFrameHeader = 9;
  const size_t trailer_bytes = send({{"grpc-status", "0"}, {"details", std::string(40'000, '~')}}, true);
  EXPECT_GT(trailer_bytes, 2 * 16384) << "a CONTINUATION frame or two follow";
  ASSERT_EQ(call.header_bytes.size(), 3);
  EXPECT_LE(call.header_bytes[2], trailer_bytes);
  EXPECT_GE(call.header_bytes[2], trailer_bytes - 3 * kFrameHeader);
}

// A secret takes its full length each time. It must not enter a table, where the length would show that a guess is
// right.
TEST(Http2Session, SecretsEnterNoTable) {
  SessionPair pair;
  pair.Carry();
  HeaderList headers = RequestHeaders();
  headers.push_back({"authorization", std::string(200, '%'), true});
  headers.push_back({"known", std::string(200, '%'), false});
  std::vector<size_t> bytes;
  for (int i = 0; i < 2; ++i) {
    RecordedStream call;
    const int32_t id = *pair.client->Open(headers, "", true, 0, call);
    bytes.push_back(SessionPair::CarryOnce(*pair.client, *pair.server));
    EXPECT_THAT(pair.served(id).headers, ElementsAre(headers)) << "with the mark that it is a secret";
    pair.client->Reset(id, Http2Error::kCancel);
    pair.Carry();
  }
  EXPECT_GT(bytes[0], 300);
  EXPECT_GT(bytes[1], 120);
  EXPECT_LT(bytes[1], bytes[0] - 120) << "what is no secret is in the table";
}

TEST(Http2Session, AnswersPings) {
  RawServer server;
  server.Say(raw::Ping());
  auto frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kPing));
  EXPECT_EQ(frames[0].flags, raw::kAck);
  EXPECT_EQ(frames[0].payload, "12345678");
  server.client->Send(Http2Session::Probe::kPing);
  EXPECT_TRUE(server.client->wants_write());
  frames = server.Hear();
  ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kPing));
  EXPECT_EQ(frames[0].flags, raw::kNone);
}

TEST(Http2Session, AcknowledgesSettings) {
  RawServer server;
  ASSERT_THAT(raw::Types(server.answer_to_settings), ElementsAre(raw::kSettings));
  EXPECT_EQ(server.answer_to_settings[0].flags, raw::kAck);
}

TEST(Http2Session, SendsOneEmptySettingsUntilItIsAcknowledged) {
  const auto probe = [](RawServer& server) { server.client->Send(Http2Session::Probe::kSettings); };
  RawServer late({}, raw::Settings());
  probe(late);
  EXPECT_THAT(late.Hear(), IsEmpty()) << "the SETTINGS of the preface is not acknowledged";
  late.Say(raw::SettingsAck());
  EXPECT_THAT(late.Hear(), IsEmpty());
  for (int i = 0; i < 3; ++i) {
    probe(late);
    EXPECT_TRUE(late.client->wants_write());
    probe(late);
    const auto frames = late.Hear();
    ASSERT_THAT(raw::Types(frames), ElementsAre(raw::kSettings));
    EXPECT_EQ(frames[0].flags, raw::kNone);
    EXPECT_EQ(frames[0].payload, "");
    probe(late);
    late.Say(raw::Settings());  // of the server, which is no acknowledgement
    late.Hear();
    probe(late);
    EXPECT_THAT(late.Hear(), IsEmpty());
    late.Say(raw::SettingsAck());
  }
}

// An empty SETTINGS leaves every value as it is, on both sides.
TEST(Http2Session, AnEmptySettingsChangesNoWindow) {
  SessionPair pair({.stream_window_bytes = 6});
  RecordedStream call;
  const int32_t id = *pair.client->Open(RequestHeaders(), "", true, 0, call);
  pair.Carry();
  pair.server->SendHeaders(id, ResponseHeaders(), false);
  ASSERT_EQ(*pair.server->SendData(id, std::string(100, 'x'), true), 94);
  pair.Carry();
  const size_t slots = pair.client->open_slots();
  pair.client->Send(Http2Session::Probe::kSettings);
  EXPECT_EQ(pair.Carry(), 18U);
  EXPECT_EQ(pair.server->unsent_bytes(id), 94);
  EXPECT_EQ(pair.client->open_slots(), slots);
  EXPECT_EQ(call.data.size(), 6);
  pair.client->Grant(id, 94);
  pair.Carry();
  EXPECT_EQ(call.data.size(), 100);
}

TEST(Http2Session, LosingTheConnectionEndsEveryStreamInOrder) {
  RawServer server;
  std::vector<RecordedStream> calls(20);
  std::vector<int> order;
  for (size_t i = 0; i < calls.size(); ++i) {
    server.Open(calls[i]);
    calls[i].on_closed = [&order, i, &server] {
      order.push_back(static_cast<int>(i));
      RecordedStream late;
      EXPECT_EQ(server.client->Open(RequestHeaders(), "", true, 0, late).status().code(),
                absl::StatusCode::kResourceExhausted);
    };
  }
  server.client->Lose();
  for (RecordedStream& call : calls) EXPECT_TRUE(call.is(Kind::kLost));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(server.client->streams(), 0);
  EXPECT_EQ(server.client->open_slots(), 0);
  EXPECT_TRUE(server.client->going_away());
  EXPECT_FALSE(server.client->wants_write());
  EXPECT_THAT(server.Hear(), IsEmpty());
  server.client->Reset(1, Http2Error::kCancel);
  server.client->Grant(1, 5);
  EXPECT_EQ(*server.client->SendData(1, "x", true), 0);
  server.client->Lose();
  EXPECT_EQ(server.client->Receive(raw::Ping()).code(), absl::StatusCode::kUnavailable);
}

TEST(Http2Session, ARequestThatHasNotLeftALostConnectionIsUnhandled) {
  RawServer server;
  RecordedStream sent, waiting, serialised;
  server.Open(sent);
  ASSERT_TRUE(server.client->Open(RequestHeaders(), "", true, 0, serialised).ok());
  server.Say(raw::Ping());  // Receive serializes the request, but no Output takes it
  ASSERT_TRUE(server.client->Open(RequestHeaders(), "", true, 0, waiting).ok());
  server.client->Lose();
  EXPECT_TRUE(sent.is(Kind::kLost));
  EXPECT_TRUE(serialised.is(Kind::kUnhandled, Http2Error::kRefusedStream));
  EXPECT_TRUE(waiting.is(Kind::kUnhandled, Http2Error::kRefusedStream));
}

TEST(Http2Session, DestroyingItCallsNobody) {
  RawServer server;
  RecordedStream call;
  server.Open(call);
  server.client.reset();
  EXPECT_THAT(call.closed, IsEmpty());
}

// Callbacks of StreamEvents may call every function of the session but Receive and Output.
TEST(Http2Session, IsUsedFromItsOwnCallbacks) {
  RawServer server({.stream_window_bytes = 100});
  RecordedStream first, second, third;
  const int32_t id = server.Open(first);
  int32_t second_id = 0;
  first.on_headers = [&] {
    second_id = *server.client->Open(RequestHeaders(), "body", false, 10, second);
    server.client->Grant(second_id, 20);
    server.client->Grant(id, 5);
    EXPECT_EQ(*server.client->SendData(second_id, "more", true), 0);
    EXPECT_THAT(server.Hear(), IsEmpty()) << "not from within";
  };
  first.on_data = [&] {
    server.client->Reset(id, Http2Error::kCancel);
    server.client->Reset(id, Http2Error::kInternalError);
  };
  first.on_closed = [&] { ASSERT_TRUE(server.client->Open(RequestHeaders(), "", true, 0, third).ok()); };
  // After a reset, the stream receives only the event of its end.
  server.Say(raw::Headers(id, ResponseHeaders()) + raw::Data(id, "a") + raw::Data(id, "b") +
             raw::Headers(id, Trailers(), true));
  EXPECT_EQ(first.data, "a");
  EXPECT_TRUE(first.is(Kind::kReset, Http2Error::kCancel));
  const auto frames = server.Hear();
  EXPECT_THAT(raw::Types(frames),
              UnorderedElementsAre(raw::kHeaders, raw::kData, raw::kRstStream, raw::kWindowUpdate, raw::kHeaders));
  for (const raw::ReadFrame& frame : frames) {
    if (frame.type == raw::kData) {
      EXPECT_EQ(frame.payload, "bodymore");
    }
    if (frame.type == raw::kWindowUpdate) {
      EXPECT_EQ(frame.number(), 30);
    }
  }
  EXPECT_EQ(server.client->streams(), 2);
}

TEST(Http2Session, MayBeLostFromEveryCallback) {
  enum class From { kHeaders, kData, kClosed, kClosedInOutput, kSlots, kWritable };
  for (const From from :
       {From::kHeaders, From::kData, From::kClosed, From::kClosedInOutput, From::kSlots, From::kWritable}) {
    RawServer server({.stream_window_bytes = 100},
                     raw::Settings({{raw::kMaxConcurrentStreams, 100}}) + raw::SettingsAck());
    RecordedStream first, second;
    const int32_t id = *server.client->Open(RequestHeaders(), "", false, 0, first);
    const int32_t second_id = *server.client->Open(RequestHeaders(), "", false, 0, second);
    ASSERT_GT(*server.client->SendData(second_id, std::string(70000, 'x'), false), 0);
    server.Hear();
    int losses = 0;
    const auto lose = [&] {
      ++losses;
      server.client->Lose();
    };
    if (from == From::kHeaders) first.on_headers = lose;
    if (from == From::kData) first.on_data = lose;
    if (from == From::kClosed || from == From::kClosedInOutput) first.on_closed = lose;
    if (from == From::kSlots) server.events.on_slots = lose;
    if (from == From::kWritable) second.on_writable = lose;
    if (from == From::kClosedInOutput) {
      server.client->Reset(id, Http2Error::kCancel);
      server.Hear();
    } else {
      ASSERT_TRUE(server.client
                      ->Receive(raw::Headers(id, ResponseHeaders()) + raw::Data(id, "abc") +
                                raw::Settings({{raw::kMaxConcurrentStreams, 200}}) + raw::WindowUpdate(0, 100000) +
                                raw::WindowUpdate(second_id, 100000) + raw::RstStream(id, 8))
                      .ok());
    }
    EXPECT_GE(losses, 1);
    EXPECT_EQ(first.closed.size(), 1);
    EXPECT_TRUE(second.is(Kind::kLost));
    EXPECT_THAT(server.Hear(), IsEmpty());
  }
}

// nghttp2 fails to send the HEADERS of a request that was reset. AddressSanitizer checks that it frees them.
TEST(Http2Session, MayBeLostWhileARequestFailsToLeave) {
  RawServer server;
  RecordedStream first, second;
  const int32_t id = *server.client->Open(RequestHeaders(), "body", true, 100, first);
  ASSERT_TRUE(server.client->Open(RequestHeaders(), "body", true, 100, second).ok());
  first.on_closed = [&] { server.client->Lose(); };
  server.client->Reset(id, Http2Error::kCancel);
  server.Hear();
  EXPECT_TRUE(first.is(Kind::kReset, Http2Error::kCancel));
  EXPECT_TRUE(second.is(Kind::kUnhandled, Http2Error::kRefusedStream));
}

TEST(Http2Session, ResetBeforeTheRequestLeavesSendsNothing) {
  RawServer server;
  RecordedStream call;
  const int32_t id = *server.client->Open(RequestHeaders(), "body", true, 100, call);
  EXPECT_FALSE(server.client->on_wire(id));
  server.client->Reset(id, Http2Error::kCancel);
  EXPECT_THAT(server.Hear(), IsEmpty());
  EXPECT_TRUE(call.is(Kind::kReset, Http2Error::kCancel));
  EXPECT_EQ(server.client->streams(), 0);
}

TEST(Http2Session, EitherSideResets) {
  SessionPair pair;
  RecordedStream by_client, by_server;
  const int32_t client_id = *pair.client->Open(RequestHeaders(), "", true, 0, by_client);
  const int32_t server_id = *pair.client->Open(RequestHeaders(), "", true, 0, by_server);
  pair.Carry();
  pair.client->Reset(client_id, Http2Error::kCancel);
  pair.server->Reset(server_id, Http2Error::kInternalError);
  pair.Carry();
  EXPECT_TRUE(by_client.is(Kind::kReset, Http2Error::kCancel));
  EXPECT_TRUE(pair.served(client_id).is(Kind::kReset, Http2Error::kCancel));
  EXPECT_TRUE(by_server.is(Kind::kReset, Http2Error::kInternalError));
  EXPECT_TRUE(pair.served(server_id).is(Kind::kReset, Http2Error::kInternalError));
}

TEST(Http2Session, ResetWithoutAnErrorIsNoCompletion) {
  RawServer server;
  RecordedStream call;
  const int32_t id = *server.client->Open(RequestHeaders(), "", false, 0, call);
  server.Hear();
  server.Say(raw::Headers(id, ResponseHeaders(), true) + raw::RstStream(id, 0));
  EXPECT_EQ(call.ends, 1);
  EXPECT_TRUE(call.is(Kind::kReset));
}

TEST(Http2Session, NamesTheOptionThatIsOutOfRange) {
  RecordedSession events;
  const auto error = [&](Http2Session::Options options) {
    return std::string(Http2Session::Create(options, events).status().message());
  };
  EXPECT_THAT(error({.stream_window_bytes = 1u << 31}),
              HasSubstr("stream_window_bytes is 2147483648, and must be 0 to 2147483647"));
  EXPECT_THAT(error({.connection_window_bytes = 65534}), HasSubstr("connection_window_bytes is 65534"));
  EXPECT_THAT(error({.max_frame_bytes = 16383}), HasSubstr("max_frame_bytes is 16383"));
  EXPECT_THAT(error({.max_frame_bytes = 1u << 24}), HasSubstr("16384 to 16777215"));
}

}  // namespace
}  // namespace sluice
