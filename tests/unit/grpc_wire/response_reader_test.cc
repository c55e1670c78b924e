#include "lib/grpc_wire/response_reader.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/grpc_wire/request.h"
#include "lib/grpc_wire/response_head.h"
#include "tests/unit/grpc_wire/test_messages.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<std::string> TakeAll(ResponseReader& reader) {
  std::vector<std::string> messages;
  for (WireMessage message; reader.TakeMessage(message);) messages.push_back(message.bytes);
  return messages;
}

TEST(ResponseReaderTest, AMessageAndOk) {
  const Metadata initial = {{"x-shard", "7"}, {"a-bin", std::string("\0\1", 2)}};
  const Metadata trailing = {{"x-left", "3"}};
  ResponseReader reader({});
  reader.OnHeaders(ToHeaders(ResponseHead{.metadata = &initial}), false);
  reader.OnData(FrameMessage("hello"), false);
  EXPECT_THAT(TakeAll(reader), ElementsAre("hello"));
  reader.OnHeaders(ToTrailers(absl::OkStatus(), "", trailing), true);
  EXPECT_FALSE(reader.failed());
  const RpcEnd end = reader.End(kComplete);
  EXPECT_EQ(end.status, absl::OkStatus());
  EXPECT_EQ(end.status_details, "");
  EXPECT_EQ(end.initial_metadata, initial);
  EXPECT_EQ(end.trailing_metadata, trailing);
  EXPECT_FALSE(end.unhandled);
}

TEST(ResponseReaderTest, TheSizeIsKnownWithThePrefix) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  EXPECT_EQ(reader.pending_message_bytes(), 0);
  const std::string framed = FrameMessage(std::string(10'000, 'x'));
  reader.OnData(framed.substr(0, 6), false);
  EXPECT_EQ(reader.pending_message_bytes(), 9'999);
  reader.OnData(framed.substr(6), false);
  EXPECT_EQ(reader.pending_message_bytes(), 0);
  EXPECT_THAT(TakeAll(reader), ElementsAre(std::string(10'000, 'x')));
}

TEST(ResponseReaderTest, AnErrorWithDetails) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  reader.OnHeaders(ToTrailers(absl::NotFoundError("no key %\n"), "some details", {}), true);
  const RpcEnd end = reader.End(kComplete);
  EXPECT_EQ(end.status, absl::NotFoundError("no key %\n"));
  EXPECT_EQ(end.status_details, "some details");
}

TEST(ResponseReaderTest, TrailersAlone) {
  ResponseReader reader({});
  reader.OnHeaders(ToTrailersOnly(absl::AbortedError("why"), "details", {{"x-left", "3"}}), true);
  const RpcEnd end = reader.End(kComplete);
  EXPECT_EQ(end.status, absl::AbortedError("why"));
  EXPECT_EQ(end.status_details, "details");
  EXPECT_THAT(end.initial_metadata, IsEmpty());
  EXPECT_THAT(end.trailing_metadata, ElementsAre(Pair("x-left", "3")));
}

// Envoy sends its own errors like this: grpc-status has priority over the HTTP status.
TEST(ResponseReaderTest, TrailersAloneWithAnHttpError) {
  ResponseReader reader({});
  reader.OnHeaders({{":status", "503"}, {"content-type", "text/plain"}, {"grpc-status", "8"}}, true);
  EXPECT_EQ(reader.End(kComplete).status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(ResponseReaderTest, AnErrorKeepsItsStatusBehindAMessage) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  reader.OnData(FrameMessage("hello"), false);
  reader.OnHeaders(ToTrailers(absl::DataLossError("late"), "", {}), true);
  EXPECT_EQ(reader.End(kComplete).status, absl::DataLossError("late"));
}

TEST(ResponseReaderTest, AnErrorKeepsItsStatusBehindAMessageThatWasCutOff) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  reader.OnData(FrameMessage("hello").substr(0, 7), false);
  reader.OnHeaders(ToTrailers(absl::DataLossError("disk"), "", {}), true);
  EXPECT_EQ(reader.End(kComplete).status, absl::DataLossError("disk"));
}

TEST(ResponseReaderTest, AMessageThatWasCutOffIsInternal) {
  const std::string framed = FrameMessage("hello");
  for (size_t came = 1; came < framed.size(); ++came) {
    ResponseReader reader({});
    reader.OnHeaders(Head(), false);
    reader.OnData(framed.substr(0, came), false);
    reader.OnHeaders(ToTrailers(absl::OkStatus(), "details", {}), true);
    EXPECT_EQ(reader.pending_message_bytes(), 0);
    const RpcEnd end = reader.End(kComplete);
    EXPECT_EQ(end.status.code(), absl::StatusCode::kInternal) << came;
    EXPECT_THAT(std::string(end.status.message()), HasSubstr("cut off"));
    EXPECT_EQ(end.status_details, "");
  }
}

TEST(ResponseReaderTest, OkWithoutAMessageIsUnimplemented) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  reader.OnHeaders(OkTrailers(), true);
  EXPECT_EQ(reader.End(kComplete).status, absl::UnimplementedError("grpc-status is 0, but no message came"));

  ResponseReader alone({});
  alone.OnHeaders(ToTrailersOnly(absl::OkStatus(), "", {}), true);
  EXPECT_EQ(alone.End(kComplete).status.code(), absl::StatusCode::kUnimplemented);
}

TEST(ResponseReaderTest, ASecondMessageIsUnimplemented) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  reader.OnData(FrameMessage("one"), false);
  EXPECT_FALSE(reader.failed());
  reader.OnData(FrameMessage("two"), false);
  EXPECT_TRUE(reader.failed());
  reader.OnHeaders(OkTrailers(), true);
  EXPECT_EQ(reader.End(kComplete).status, absl::UnimplementedError("more than 1 message came"));
}

TEST(ResponseReaderTest, AnEmptyMessageIsAMessage) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  reader.OnData(FrameMessage(""), false);
  EXPECT_THAT(TakeAll(reader), ElementsAre(""));
  reader.OnHeaders(OkTrailers(), true);
  EXPECT_EQ(reader.End(kComplete).status, absl::OkStatus());
}

TEST(ResponseReaderTest, AStreamHasAnyNumberOfMessages) {
  ResponseReader none({.server_streaming = true});
  none.OnHeaders(Head(), false);
  none.OnHeaders(OkTrailers(), true);
  EXPECT_EQ(none.End(kComplete).status, absl::OkStatus());

  ResponseReader three({.server_streaming = true});
  three.OnHeaders(Head(), false);
  three.OnData(FrameMessage("one") + FrameMessage("two") + FrameMessage("three"), false);
  three.OnHeaders(OkTrailers(), true);
  EXPECT_THAT(TakeAll(three), ElementsAre("one", "two", "three"));
  EXPECT_EQ(three.End(kComplete).status, absl::OkStatus());
}

TEST(ResponseReaderTest, ATooLargeMessageFailsAtOnce) {
  ResponseReader reader({.max_message_bytes = 10});
  reader.OnHeaders(Head(), false);
  reader.OnData(FrameMessage(std::string(11, 'x')).substr(0, 5), false);
  EXPECT_TRUE(reader.failed());
  EXPECT_EQ(reader.pending_message_bytes(), 0);
  EXPECT_EQ(
      reader.End({StreamEnd::Kind::kReset, Http2Error::kCancel}).status,
      absl::ResourceExhaustedError("message of 11 bytes is larger than 10 bytes, this client's max_response_bytes"));
}

TEST(ResponseReaderTest, HeadersThatAreTooLargeNameTheBoundOfThisSide) {
  ResponseReader reader(ResponseReader::Options{});
  EXPECT_EQ(reader.End({StreamEnd::Kind::kReset, Http2Error::kEnhanceYourCalm, true, 65536}).status,
            absl::ResourceExhaustedError(
                "headers of the response are larger than this client's max_header_list_bytes: 65536"));
}

TEST(ResponseReaderTest, CompressedMessagesStayAsTheyCame) {
  ResponseReader reader({.max_message_bytes = 50'000});
  reader.OnHeaders(ToHeaders(ResponseHead{.encoding = "gzip"}), false);
  reader.OnData(CompressedMessage(std::string(16 << 20, '\0')), false);
  reader.OnHeaders(OkTrailers(), true);
  WireMessage message;
  ASSERT_TRUE(reader.TakeMessage(message));
  EXPECT_EQ(message, (WireMessage{GzipOf(std::string(16 << 20, '\0')), true}));
  EXPECT_EQ(reader.End(kComplete).status, absl::OkStatus());
}

TEST(ResponseReaderTest, AnUnknownEncodingIsInternal) {
  ResponseReader reader({});
  reader.OnHeaders(ToHeaders(ResponseHead{.encoding = "deflate"}), false);
  EXPECT_TRUE(reader.failed());
  const absl::Status status = reader.End(kComplete).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"deflate\""));
}

TEST(ResponseReaderTest, DataBeforeHeadersIsInternal) {
  ResponseReader reader({});
  reader.OnData("x", false);
  EXPECT_TRUE(reader.failed());
  EXPECT_EQ(reader.End(kComplete).status.code(), absl::StatusCode::kInternal);
}

TEST(ResponseReaderTest, HeadersInTheMiddleAreInternal) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  reader.OnData(FrameMessage("hello").substr(0, 6), false);
  EXPECT_EQ(reader.pending_message_bytes(), 4);
  reader.OnHeaders(OkTrailers(), false);
  EXPECT_TRUE(reader.failed());
  EXPECT_EQ(reader.pending_message_bytes(), 0);
  EXPECT_EQ(reader.End(kComplete).status.code(), absl::StatusCode::kInternal);
}

TEST(ResponseReaderTest, WhatFollowsTheEndCountsForNothing) {
  ResponseReader reader({});
  reader.OnHeaders(Head(), false);
  reader.OnData(FrameMessage("one"), false);
  reader.OnHeaders(OkTrailers(), true);
  reader.OnData(FrameMessage("two"), true);
  reader.OnHeaders(ToTrailers(absl::AbortedError(""), "", {}), true);
  EXPECT_FALSE(reader.failed());
  EXPECT_THAT(TakeAll(reader), ElementsAre("one"));
  EXPECT_EQ(reader.End(kComplete).status, absl::OkStatus());
}

TEST(ResponseReaderTest, ByteByByteIsTheSame) {
  const std::string bytes = CompressedMessage("one") + FrameMessage("") + FrameMessage("three");
  ResponseReader reader({.server_streaming = true});
  reader.OnHeaders(ToHeaders(ResponseHead{.encoding = "gzip"}), false);
  for (const char byte : bytes) {
    reader.OnData("", false);
    reader.OnData(absl::string_view(&byte, 1), false);
  }
  reader.OnHeaders(OkTrailers(), true);
  EXPECT_THAT(TakeAll(reader), ElementsAre(GzipOf("one"), "", "three"));
  EXPECT_EQ(reader.End(kComplete).status, absl::OkStatus());
}

}  // namespace
}  // namespace sluice
