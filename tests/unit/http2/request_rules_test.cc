// Compares the checks of received requests with nghttp2's own, and tests the rule that differs from them.
#include "lib/http2/request_rules.h"

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <nghttp2/nghttp2.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/random_seed.h"
#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/http2/recorder.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

// The events of one request at a server, and whether the server has reset it.
struct Outcome {
  std::vector<HeaderList> headers;
  std::string data;
  int ends = 0;
  bool reset = false;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

std::string Show(const Outcome& outcome) {
  std::string text = absl::StrCat(outcome.reset ? "reset" : "taken", ", ends ", outcome.ends, ", data ", outcome.data);
  for (const HeaderList& list : outcome.headers) {
    for (const auto& [name, value, secret] : list) absl::StrAppend(&text, "; ", name, ": ", value);
  }
  return text;
}

bool HasReset(const std::vector<raw::ReadFrame>& frames) {
  bool reset = false;
  for (const raw::ReadFrame& frame : frames) {
    EXPECT_NE(frame.type, raw::kGoAway);
    if (frame.type != raw::kRstStream) continue;
    EXPECT_EQ(frame.number(), static_cast<uint32_t>(Http2Error::kProtocolError));
    EXPECT_FALSE(std::exchange(reset, true)) << "one reset is enough";
  }
  return reset;
}

const std::string kBegin = raw::kPreface + raw::Settings() + raw::SettingsAck();

// A server of nghttp2 that makes all checks itself.
Outcome WithNghttp2(const std::string& bytes) {
  struct Seen : Outcome {
    HeaderList block;
  } seen;
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_session_callbacks_new(&callbacks);
  nghttp2_session_callbacks_set_on_header_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame*, const uint8_t* name, size_t name_bytes,
                    const uint8_t* value, size_t value_bytes, uint8_t, void* data) {
        static_cast<Seen*>(data)->block.push_back({std::string(reinterpret_cast<const char*>(name), name_bytes),
                                                   std::string(reinterpret_cast<const char*>(value), value_bytes)});
        return 0;
      });
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
      callbacks, [](nghttp2_session*, uint8_t, int32_t, const uint8_t* bytes, size_t size, void* data) {
        static_cast<Seen*>(data)->data.append(reinterpret_cast<const char*>(bytes), size);
        return 0;
      });
  nghttp2_session_callbacks_set_on_frame_recv_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* data) {
        Seen& outcome = *static_cast<Seen*>(data);
        if (frame->hd.type == NGHTTP2_HEADERS) outcome.headers.push_back(std::exchange(outcome.block, {}));
        if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
        if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) ++outcome.ends;
        return 0;
      });
  nghttp2_option* option = nullptr;
  nghttp2_option_new(&option);
  nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1);
  nghttp2_session* session = nullptr;
  nghttp2_session_server_new2(&session, callbacks, &seen, option);
  nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, nullptr, 0);
  EXPECT_EQ(nghttp2_session_mem_recv(session, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
            static_cast<ssize_t>(bytes.size()));
  std::string sent;
  for (;;) {
    const uint8_t* out = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session, &out);
    if (size <= 0) break;
    sent.append(reinterpret_cast<const char*>(out), static_cast<size_t>(size));
  }
  seen.reset = HasReset(raw::ReadFrames(sent));
  nghttp2_session_del(session);
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  return seen;
}

struct RecordedRequests : RecordedSession {
  std::vector<std::string> malformed;

  void OnMalformedRequest(absl::string_view why) override { malformed.emplace_back(why); }
};

Outcome WithSession(const std::string& bytes) {
  RecordedRequests events;
  const auto server = *Http2Session::Create({.side = Http2Session::Side::kServer}, events);
  EXPECT_TRUE(server->Receive(bytes).ok());
  Outcome outcome;
  outcome.reset = HasReset(raw::OutputFrames(*server));
  EXPECT_EQ(events.malformed.size(), outcome.reset ? 1 : 0) << "a reset has a reason";
  if (const auto found = events.streams.find(1); found != events.streams.end()) {
    const RecordedStream& stream = *found->second;
    outcome.headers = stream.headers;
    outcome.data = stream.data;
    outcome.ends = stream.ends;
    EXPECT_EQ(stream.is(StreamEnd::Kind::kReset, Http2Error::kProtocolError), outcome.reset);
  }
  return outcome;
}

// Returns whether the request is taken.
bool ExpectSame(const std::string& frames) {
  const Outcome expected = WithNghttp2(kBegin + frames), got = WithSession(kBegin + frames);
  EXPECT_TRUE(got == expected) << "nghttp2: " << Show(expected) << "\nhere: " << Show(got);
  return !expected.reset;
}

bool ExpectSame(const HeaderList& headers) {
  SCOPED_TRACE(testing::PrintToString(raw::HeaderBlock(headers)));
  return ExpectSame(raw::Headers(1, headers, true));
}

HeaderList With(const std::string& name, const std::string& value) {
  HeaderList headers = RequestHeaders();
  for (HeaderField& field : headers) {
    if (field.name != name) continue;
    field.value = value;
    return headers;
  }
  headers.push_back({name, value});
  return headers;
}

TEST(RequestRules, EachByteOfAValueIsTakenOrNotAsByNghttp2) {
  int taken = 0;
  for (const char* name : {":method", ":scheme", ":path", "host", "te", "content-length", "x", "x-bin"}) {
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      taken += ExpectSame(With(name, std::string(1, c)));
      taken += ExpectSame(With(name, absl::StrCat("/a", std::string(1, c), "b")));
      taken += ExpectSame(With(name, absl::StrCat("trailers", std::string(1, c))));
    }
    taken += ExpectSame(With(name, ""));
  }
  EXPECT_GT(taken, 1000);
}

TEST(RequestRules, EachByteOfANameIsTakenOrNotAsByNghttp2) {
  int taken = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string c(1, static_cast<char>(byte));
    for (const std::string& name : {c, absl::StrCat("a", c), absl::StrCat(c, "a"), absl::StrCat(":path", c)}) {
      taken += ExpectSame(With(name, "x"));
    }
  }
  taken += ExpectSame(With("", "x"));
  EXPECT_GT(taken, 100);
}

TEST(RequestRules, EachRuleOfAHeaderBlockHolds) {
  struct Case {
    HeaderList headers;
    bool taken;
  };
  const HeaderField method{":method", "POST"}, scheme{":scheme", "http"}, path{":path", "/a"},
      authority{":authority", "w:1"};
  const HeaderField options{":method", "OPTIONS"}, connect{":method", "CONNECT"}, asterisk{":path", "*"};
  const std::vector<Case> cases = {
      {{method, scheme, path, authority}, true},
      {{scheme, path, authority}, false},  // a pseudo-header is missing
      {{method, path, authority}, false},
      {{method, scheme, authority}, false},
      {{method, scheme, path}, false},
      {{method, scheme, path, {"host", "w:1"}}, true},
      {{method, method, scheme, path, authority}, false},  // is there twice
      {{method, scheme, scheme, path, authority}, false},
      {{method, scheme, path, path, authority}, false},
      {{method, scheme, path, authority, authority}, false},
      {{method, scheme, path, authority, {"host", "w:1"}}, true},
      {{method, scheme, path, authority, {"host", "w:1"}, {"host", "w:1"}}, false},
      {{method, scheme, path, {"a", "b"}, authority}, false},  // follows a regular one
      {{method, scheme, path, authority, {":status", "200"}}, false},
      {{method, scheme, path, authority, {":new", "1"}}, false},
      {{connect, scheme, path, authority, {":protocol", "websocket"}}, false},
      {{method, scheme, path, authority, {"connection", "close"}}, false},
      {{method, scheme, path, authority, {"keep-alive", "1"}}, false},
      {{method, scheme, path, authority, {"proxy-connection", "1"}}, false},
      {{method, scheme, path, authority, {"transfer-encoding", "chunked"}}, false},
      {{method, scheme, path, authority, {"upgrade", "h2c"}}, false},
      {{method, scheme, path, authority, {"te", "Trailers"}}, true},
      {{method, scheme, path, authority, {"te", "gzip"}}, false},
      {{method, scheme, path, authority, {"Upper", "x"}}, false},
      {{method, scheme, path, authority, {"content-length", "0"}}, true},
      {{method, scheme, path, authority, {"content-length", "0"}, {"content-length", "0"}}, false},
      {{method, scheme, path, authority, {"content-length", "1"}}, false},  // the request has no body
      {{method, scheme, path, authority, {"content-length", "9223372036854775808"}}, false},
      {{method, scheme, path, authority, {"content-length", "-1"}}, false},
      {{method, scheme, path, authority, {"content-length", ""}}, false},
      {{connect, authority}, true},
      {{connect, authority, {"content-length", "7"}}, true},
      {{connect}, false},
      {{connect, {"host", "w:1"}}, false},
      {{connect, scheme, authority}, false},
      {{scheme, connect, authority}, false},
      {{connect, path, authority}, false},
      {{method, scheme, {":path", "a"}, authority}, false},
      {{method, {":scheme", "HTTPS"}, {":path", "a"}, authority}, false},
      {{method, {":scheme", "ftp"}, {":path", "a"}, authority}, true},
      {{method, scheme, asterisk, authority}, false},
      {{options, scheme, asterisk, authority}, true},
      {{{":method", "GET /"}, scheme, path, authority}, false},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ExpectSame(c.headers), c.taken) << testing::PrintToString(raw::HeaderBlock(c.headers));
  }
}

TEST(RequestRules, TheBodyHasTheLengthOfContentLength) {
  HeaderList headers = RequestHeaders();
  headers.push_back({"content-length", "3"});
  const std::string head = raw::Headers(1, headers);
  const std::string trailers = raw::Headers(1, {{"a", "b"}}, true);
  EXPECT_TRUE(ExpectSame(head + raw::Data(1, "ab") + raw::Data(1, "c", true)));
  EXPECT_TRUE(ExpectSame(head + raw::PaddedData(1, "abc", 9, true)));
  EXPECT_TRUE(ExpectSame(head + raw::Data(1, "abc") + trailers));
  EXPECT_FALSE(ExpectSame(head + raw::Data(1, "ab", true)));
  EXPECT_FALSE(ExpectSame(head + raw::Data(1, "ab") + trailers));
  EXPECT_FALSE(ExpectSame(head + raw::Data(1, "abcd")));
  EXPECT_FALSE(ExpectSame(head + raw::Data(1, "abc") + raw::Data(1, "d", true)));
  EXPECT_FALSE(ExpectSame(raw::Headers(1, headers, true)));
}

TEST(RequestRules, TrailersEndTheStreamAndHaveNoPseudoHeaders) {
  const std::string head = raw::Headers(1, RequestHeaders()) + raw::Data(1, "a");
  EXPECT_TRUE(ExpectSame(head + raw::Headers(1, {{"a", "b"}}, true)));
  EXPECT_FALSE(ExpectSame(head + raw::Headers(1, {{"a", "\x01"}}, true)));
  EXPECT_TRUE(ExpectSame(head + raw::Headers(1, {{"te", "trailers"}}, true)));
  EXPECT_FALSE(ExpectSame(head + raw::Headers(1, {{"a", "b"}}, false)));
  EXPECT_FALSE(ExpectSame(head + raw::Headers(1, {{":path", "/a"}}, true)));
  EXPECT_FALSE(ExpectSame(head + raw::Headers(1, {{":authority", "w"}}, true)));
  // These are not refused for being there twice.
  const HeaderList by_host = {{":method", "POST"}, {":scheme", "http"}, {":path", "/a"}, {"host", "w"}};
  EXPECT_FALSE(ExpectSame(raw::Headers(1, by_host) + raw::Headers(1, {{":authority", "w"}}, true)));
  const HeaderList connect = {{":method", "CONNECT"}, {":authority", "w"}};
  EXPECT_FALSE(ExpectSame(raw::Headers(1, connect) + raw::Headers(1, {{":path", "/a"}}, true)));
  EXPECT_FALSE(ExpectSame(head + raw::Headers(1, {{"connection", "close"}}, true)));
  EXPECT_FALSE(ExpectSame(head + raw::Headers(1, {{"A", "b"}}, true)));
  EXPECT_FALSE(ExpectSame(head + raw::Headers(1, {{"content-length", "9"}}, true)));
}

// Requests with a few mistakes at a time, in all places of a request.
TEST(RequestRules, RandomRequestsHaveTheSameOutcomeAsInNghttp2) {
  const uint64_t seed = TakeRandomSeed().value;
  std::mt19937_64 random(seed);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  const std::vector<std::string> names = {
      ":method",        ":scheme",    ":path",   ":authority", ":status", ":protocol", "host", "te",
      "content-length", "connection", "upgrade", "priority",   "x",       "X",         "a b"};
  const std::vector<std::string> values = {"POST", "CONNECT", "OPTIONS", "HEAD", "http",     "https",
                                           "ftp",  "/a",      "*",       "w:1",  "trailers", "0",
                                           "2",    "u=1, i",  " x ",     "\x7f", "\xff",     "a\nb"};
  const auto mistaken = [&](HeaderList headers) {
    for (size_t mistakes = below(3); mistakes > 0; --mistakes) {
      const size_t at = below(headers.size() + 1);
      const HeaderField other{names[below(names.size())], values[below(values.size())]};
      // The values of :authority are the difference.
      const bool differs = other.name == ":authority" && other.value != "w:1" && other.value != "*";
      if (const size_t kind = below(3); kind == 0 && !differs) {
        headers.insert(headers.begin() + static_cast<std::ptrdiff_t>(at), other);
      } else if (kind == 1 && at < headers.size()) {
        headers.erase(headers.begin() + static_cast<std::ptrdiff_t>(at));
      } else if (!headers.empty()) {
        std::swap(headers[below(headers.size())], headers[below(headers.size())]);
      }
    }
    return headers;
  };
  int taken = 0;
  constexpr int kRequests = 20'000;
  for (int i = 0; i < kRequests && !testing::Test::HasFailure(); ++i) {
    const bool has_data = below(2) == 0, has_trailers = below(3) == 0;
    std::string frames = raw::Headers(1, mistaken(RequestHeaders()), !has_data && !has_trailers);
    if (has_data) frames += raw::Data(1, std::string(below(4), 'd'), !has_trailers);
    if (has_trailers) frames += raw::Headers(1, mistaken({{"x", "y"}}), below(8) > 0);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", request ", i, ": ", testing::PrintToString(frames)));
    taken += ExpectSame(frames);
  }
  EXPECT_GT(taken, kRequests / 10);
  EXPECT_LT(taken, kRequests * 9 / 10);
}

// gRPC's servers take it, and etcd's clients send it.
TEST(RequestRules, AnAuthorityMayBeEmptyOrHaveAnyVisibleCharacter) {
  for (const char* authority : {"", "http://h:1", "/path", "unix:/path", "#initially=[h:1;h:2]", "a\"b\\c"}) {
    const HeaderList headers = With(":authority", authority);
    const Outcome outcome = WithSession(kBegin + raw::Headers(1, headers, true));
    EXPECT_FALSE(outcome.reset) << authority;
    EXPECT_THAT(outcome.headers, ElementsAre(headers));
  }
  for (int byte = 0; byte < 256; ++byte) {
    for (const char* around : {"", "h"}) {
      const std::string authority = absl::StrCat(around, std::string(1, static_cast<char>(byte)), around);
      const Outcome outcome = WithSession(kBegin + raw::Headers(1, With(":authority", authority), true));
      EXPECT_EQ(outcome.reset, byte <= ' ' || byte >= 0x7f) << byte;
      EXPECT_EQ(outcome.headers.size(), outcome.reset ? 0 : 1);
    }
  }
}

}  // namespace
}  // namespace sluice
