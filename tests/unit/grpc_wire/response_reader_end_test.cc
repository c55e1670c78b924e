// Tests the end of calls whose response violates gRPC's protocol.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/grpc_wire/request.h"
#include "lib/grpc_wire/response_head.h"
#include "lib/grpc_wire/response_reader.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const StreamEnd kLost = {StreamEnd::Kind::kLost};
const StreamEnd kUnhandled = {StreamEnd::Kind::kUnhandled, Http2Error::kRefusedStream};

absl::StatusCode CodeOf(HeaderList only_block) {
  ResponseReader reader({});
  reader.OnHeaders(std::move(only_block), true);
  EXPECT_FALSE(reader.failed());
  return reader.End(kComplete).status.code();
}

TEST(ResponseReaderEndTest, AnHttpErrorIsMapped) {
  EXPECT_EQ(CodeOf({{":status", "400"}}), absl::StatusCode::kInternal);
  EXPECT_EQ(CodeOf({{":status", "401"}}), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(CodeOf({{":status", "403"}}), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOf({{":status", "404"}}), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CodeOf({{":status", "429"}}), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CodeOf({{":status", "431"}}), absl::StatusCode::kInternal);
  EXPECT_EQ(CodeOf({{":status", "502"}}), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CodeOf({{":status", "503"}}), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CodeOf({{":status", "504"}}), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CodeOf({{":status", "500"}}), absl::StatusCode::kUnknown);
  EXPECT_EQ(CodeOf({{":status", "200"}, {"content-type", "application/grpc"}}), absl::StatusCode::kUnknown);
  EXPECT_EQ(CodeOf({}), absl::StatusCode::kUnknown);
}

TEST(ResponseReaderEndTest, AnHttpErrorWithABodyFailsWithItsHeaders) {
  ResponseReader reader({});
  reader.OnHeaders({{":status", "503"}, {"content-type", "text/html\x1b"}, {"server", "proxy"}}, false);
  EXPECT_TRUE(reader.failed());
  reader.OnData("<html>", false);
  const RpcEnd end = reader.End({StreamEnd::Kind::kReset, Http2Error::kCancel});
  EXPECT_EQ(end.status,
            absl::UnavailableError("no grpc-status came; HTTP status \"503\", content-type \"text/html?\""));
  EXPECT_THAT(end.initial_metadata, ElementsAre(Pair("server", "proxy")));
}

TEST(ResponseReaderEndTest, AnotherContentTypeIsUnknown) {
  for (const char* type : {"text/html", "application/grpc-web", "application/json"}) {
    ResponseReader reader({});
    reader.OnHeaders({{":status", "200"}, {"content-type", type}}, false);
    EXPECT_TRUE(reader.failed());
    const absl::Status status = reader.End(kComplete).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
    EXPECT_THAT(std::string(status.message()), HasSubstr(type));
  }
}

TEST(ResponseReaderEndTest, ContentTypesWithACodecOrParametersAreGrpc) {
  for (const char* type : {"application/grpc+proto", "application/grpc;charset=utf-8"}) {
    ResponseReader reader({});
    reader.OnHeaders({{":status", "200"}, {"content-type", type}}, false);
    EXPECT_FALSE(reader.failed()) << type;
  }
}

TEST(ResponseReaderEndTest, AGrpcStatusCountsMoreThanAnHttpErrorWithABody) {
  ResponseReader reader({});
  reader.OnHeaders({{":status", "503"}, {"grpc-status", "8"}, {"grpc-message", "too%20much"}}, false);
  EXPECT_TRUE(reader.failed());
  EXPECT_EQ(reader.End(kComplete).status, absl::ResourceExhaustedError("too much"));

  ResponseReader ok({});
  ok.OnHeaders({{":status", "503"}, {"grpc-status", "0"}}, false);
  EXPECT_TRUE(ok.failed());
  EXPECT_EQ(ok.End(kComplete).status.code(), absl::StatusCode::kUnavailable);
}

TEST(ResponseReaderEndTest, TrailersWithoutAStatusAreUnknown) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  reader.OnData(FrameMessage("hello"), false);
  reader.OnHeaders({{"x-left", "3"}}, true);
  const RpcEnd end = reader.End(kComplete);
  EXPECT_EQ(end.status.code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(end.trailing_metadata, ElementsAre(Pair("x-left", "3")));
}

TEST(ResponseReaderEndTest, NoTrailersAreUnknown) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  reader.OnData(FrameMessage("hello"), true);
  EXPECT_FALSE(reader.failed());
  EXPECT_EQ(reader.End(kComplete).status.code(), absl::StatusCode::kUnknown);
}

TEST(ResponseReaderEndTest, NoTrailersBehindAMessageThatWasCutOffAreInternal) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  reader.OnData(FrameMessage("hello").substr(0, 6), true);
  EXPECT_EQ(reader.End(kComplete).status.code(), absl::StatusCode::kInternal);
}

// Some servers end a trailers-only response with an empty DATA frame.
TEST(ResponseReaderEndTest, AStatusInTheHeadersCountsWhereNothingFollows) {
  ResponseReader reader({});
  reader.OnHeaders(ToTrailersOnly(absl::AbortedError("why"), "", {}), false);
  reader.OnData("", true);
  EXPECT_EQ(reader.End(kComplete).status, absl::AbortedError("why"));
}

TEST(ResponseReaderEndTest, AStatusInTheHeadersIsNothingWhereMoreFollows) {
  ResponseReader data({});
  data.OnHeaders(ToTrailersOnly(absl::AbortedError("why"), "", {}), false);
  data.OnData(FrameMessage("hello"), true);
  EXPECT_EQ(data.End(kComplete).status.code(), absl::StatusCode::kUnknown);

  ResponseReader trailers({});
  trailers.OnHeaders(ToTrailersOnly(absl::AbortedError("why"), "details", {}), false);
  trailers.OnData(FrameMessage("hello"), false);
  trailers.OnHeaders(OkTrailers(), true);
  const RpcEnd end = trailers.End(kComplete);
  EXPECT_EQ(end.status, absl::OkStatus());
  EXPECT_EQ(end.status_details, "");
}

TEST(ResponseReaderEndTest, AStatusThatIsNoCodeIsUnknown) {
  for (const char* code : {"", "17", "OK", "-1"}) {
    EXPECT_EQ(CodeOf({{":status", "200"}, {"content-type", "application/grpc"}, {"grpc-status", code}}),
              absl::StatusCode::kUnknown)
        << code;
  }
}

TEST(ResponseReaderEndTest, DetailsThatAreNotBase64AreLeftOut) {
  ResponseReader reader({});
  reader.OnHeaders({{":status", "200"}, {"grpc-status", "5"}, {"grpc-status-details-bin", "!"}}, true);
  const RpcEnd end = reader.End(kComplete);
  EXPECT_EQ(end.status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(end.status_details, "");
}

TEST(ResponseReaderEndTest, AResetIsMapped) {
  struct Row {
    uint32_t error;
    absl::StatusCode code;
  };
  for (const Row row : {Row{0, absl::StatusCode::kInternal}, Row{1, absl::StatusCode::kInternal},
                        Row{2, absl::StatusCode::kInternal}, Row{7, absl::StatusCode::kUnavailable},
                        Row{8, absl::StatusCode::kCancelled}, Row{11, absl::StatusCode::kResourceExhausted},
                        Row{12, absl::StatusCode::kPermissionDenied}, Row{77, absl::StatusCode::kInternal}}) {
    const StreamEnd reset = {StreamEnd::Kind::kReset, static_cast<Http2Error>(row.error)};
    ResponseReader nothing({});
    EXPECT_EQ(nothing.End(reset).status.code(), row.code) << row.error;

    ResponseReader half({});
    half.OnHeaders(Head(), false);
    half.OnData(FrameMessage("hello").substr(0, 7), false);
    const RpcEnd end = half.End(reset);
    EXPECT_EQ(end.status.code(), row.code) << row.error;
    EXPECT_THAT(std::string(end.status.message()), HasSubstr("(" + std::to_string(row.error) + ")"));
    EXPECT_FALSE(end.unhandled);
  }
}

// A server that has responded before it has read the whole request resets the stream (RFC 9113, section 8.1).
TEST(ResponseReaderEndTest, TrailersHoldHoweverTheStreamCloses) {
  for (const StreamEnd& close : {StreamEnd{StreamEnd::Kind::kReset, Http2Error::kNoError},
                                 StreamEnd{StreamEnd::Kind::kReset, Http2Error::kCancel}, kLost, kUnhandled}) {
    ResponseReader ok({});
    ok.OnHeaders(Head(), false);
    ok.OnData(FrameMessage("hello"), false);
    ok.OnHeaders(OkTrailers(), true);
    EXPECT_EQ(ok.End(close).status, absl::OkStatus());

    ResponseReader error({});
    error.OnHeaders(ToTrailersOnly(absl::AbortedError("why"), "", {}), true);
    const RpcEnd end = error.End(close);
    EXPECT_EQ(end.status, absl::AbortedError("why"));
    EXPECT_FALSE(end.unhandled);
  }
}

TEST(ResponseReaderEndTest, ARequestThatWasNotTakenMayBeSentAgain) {
  ResponseReader reader({});
  const RpcEnd end = reader.End(kUnhandled);
  EXPECT_EQ(end.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(end.unhandled);
}

TEST(ResponseReaderEndTest, ARequestThatWasAnsweredWasTakenWhateverTheServerSays) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  const RpcEnd end = reader.End(kUnhandled);
  EXPECT_EQ(end.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(end.unhandled);
}

TEST(ResponseReaderEndTest, ALostConnectionIsUnavailable) {
  ResponseReader nothing({});
  const RpcEnd end = nothing.End(kLost);
  EXPECT_EQ(end.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(end.unhandled);

  ResponseReader half({});
  half.OnHeaders(Head(), false);
  half.OnData(FrameMessage("hello"), false);
  EXPECT_EQ(half.End(kLost).status.code(), absl::StatusCode::kUnavailable);
}

TEST(ResponseReaderEndTest, AStreamThatClosesWithoutAnEndIsInternal) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  EXPECT_EQ(reader.End(kComplete).status.code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace sluice
