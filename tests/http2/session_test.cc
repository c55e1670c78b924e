#include "lib/http2/session.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/http2/session_pair.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
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
