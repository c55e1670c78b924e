#include "lib/proxy/client_opening.h"

#include <ctime>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/http2/raw_frames.h"

namespace sluice {
namespace {

using Kind = ClientOpening::Kind;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using raw::kPreface;

struct Opened {
  Kind kind = Kind::kUnknown;
  std::string target;
  std::string refusal;
  std::string rest;  // includes bytes that arrive after the kind is known
};

// Passes `bytes` in pieces until the kind is known.
Opened Open(absl::string_view bytes, size_t piece_bytes = SIZE_MAX) {
  ClientOpening opening;
  Opened opened;
  while (!bytes.empty() && opened.kind == Kind::kUnknown) {
    const absl::string_view piece = bytes.substr(0, piece_bytes);
    bytes.remove_prefix(piece.size());
    opened.kind = opening.Read(piece);
    EXPECT_EQ(opened.kind, opening.kind());
  }
  opened.target = opening.target();
  opened.refusal = opening.refusal();
  opened.rest = absl::StrCat(opening.TakeRest(), bytes);
  return opened;
}

TEST(ClientOpeningTest, ThePrefaceIsHttp2WithAllOfItsBytes) {
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{23}, size_t{24}, SIZE_MAX}) {
    const Opened opened = Open(absl::StrCat(kPreface, "frames"), piece);
    EXPECT_EQ(opened.kind, Kind::kHttp2) << piece;
    EXPECT_EQ(opened.rest, absl::StrCat(kPreface, "frames")) << piece;
    EXPECT_THAT(opened.refusal, IsEmpty());
  }
}

// A greeting of SOCKS5 that offers no authentication, and user name with password.
constexpr absl::string_view kSocksGreeting("\x05\x02\x00\x02", 4);
constexpr absl::string_view kSocksRequest(
    "\x05\x01\x00\x03\x03"
    "a.b"
    "\x1b\x58",
    10);  // a.b:7000

TEST(ClientOpeningTest, ARequestOfSocks5NamesItsTarget) {
  const std::string ipv4("\x05\x01\x00\x01\x0a\x00\x00\x07\x00\x50", 10);
  const std::string ipv6 = std::string("\x05\x01\x00\x04", 4) + std::string(15, '\0') + std::string("\x01\x01\xbb", 3);
  const std::string text = absl::StrCat(absl::string_view("\x05\x01\x00\x03\x05", 5), "fd::7", "\x1b\x58");
  const std::pair<std::string, std::string> targets[] = {
      {std::string(kSocksRequest), "a.b:7000"}, {ipv4, "10.0.0.7:80"}, {ipv6, "[::1]:443"}, {text, "[fd::7]:7000"}};
  for (const auto& [request, target] : targets) {
    for (const size_t piece : {size_t{1}, size_t{3}, size_t{4}, SIZE_MAX}) {
      const Opened opened = Open(absl::StrCat(kSocksGreeting, request, "hello"), piece);
      EXPECT_EQ(opened.kind, Kind::kConnect) << target;
      EXPECT_EQ(opened.target, target);
      EXPECT_EQ(opened.rest, "hello");
    }
  }
}

TEST(ClientOpeningTest, AGreetingOfSocks5IsAnsweredBeforeTheRequest) {
  ClientOpening opening;
  EXPECT_EQ(opening.Read(kSocksGreeting.substr(0, 3)), Kind::kUnknown);
  EXPECT_EQ(opening.TakeReply(), "");
  EXPECT_EQ(opening.Read(kSocksGreeting.substr(3)), Kind::kUnknown);
  EXPECT_EQ(opening.TakeReply(), std::string("\x05\x00", 2));
  EXPECT_EQ(opening.Read(kSocksRequest), Kind::kConnect);
  EXPECT_EQ(opening.TakeReply(), "");
  EXPECT_TRUE(opening.socks());
}

TEST(ClientOpeningTest, OtherRequestsOfSocks5AreRefused) {
  EXPECT_EQ(Open("\x05\x01\x02").refusal, "\x05\xff") << "only with a password";
  const std::string bind("\x05\x02\x00\x01\x0a\x00\x00\x07\x00\x50", 10);
  EXPECT_EQ(Open(absl::StrCat(kSocksGreeting, bind)).refusal.substr(0, 2), "\x05\x07");
  const std::string unknown("\x05\x01\x00\x02\x0a\x00\x00\x07\x00\x50", 10);
  EXPECT_EQ(Open(absl::StrCat(kSocksGreeting, unknown)).refusal.substr(0, 2), "\x05\x08");
  const std::string no_name(
      "\x05\x01\x00\x03\x03"
      "a b"
      "\x1b\x58",
      10);
  const Opened refused = Open(absl::StrCat(kSocksGreeting, no_name));
  EXPECT_EQ(refused.refusal.substr(0, 2), "\x05\x08");
  EXPECT_EQ(refused.rest, absl::StrCat(kSocksGreeting, no_name)) << "all bytes";
}

TEST(SocksReplyTest, TellsWhyATargetIsNotReached) {
  for (const auto& [status, code] :
       {std::pair(absl::OkStatus(), 0), std::pair(absl::InternalError(""), 1),
        std::pair(absl::PermissionDeniedError(""), 2), std::pair(absl::NotFoundError(""), 4),
        std::pair(absl::UnavailableError(""), 5), std::pair(absl::DeadlineExceededError(""), 6)}) {
    EXPECT_EQ(SocksReply(status), std::string({'\x05', static_cast<char>(code), 0, 1, 0, 0, 0, 0, 0, 0}));
  }
}

TEST(ClientOpeningTest, APartOfAnOpeningDecidesNothing) {
  const std::string socks = absl::StrCat(kSocksGreeting, kSocksRequest);
  for (const absl::string_view opening :
       {absl::string_view(kPreface), absl::string_view("CONNECT a.b:1 HTTP/1.1\r\nHost: a.b:1\r\n\r\n"),
        absl::string_view(socks)}) {
    for (size_t bytes = 0; bytes < opening.size(); ++bytes) {
      ClientOpening part;
      EXPECT_EQ(part.Read(opening.substr(0, bytes)), Kind::kUnknown) << opening.substr(0, bytes);
    }
  }
}

TEST(ClientOpeningTest, ConnectNamesItsTargetAndLeavesWhatFollows) {
  const std::string head = "CONNECT worker-7.svc:7000 HTTP/1.1\r\nHost: worker-7.svc:7000\r\nUser-Agent: grpc\r\n\r\n";
  for (const size_t piece : {size_t{1}, size_t{3}, head.size(), SIZE_MAX}) {
    const Opened opened = Open(absl::StrCat(head, kPreface, "frames"), piece);
    EXPECT_EQ(opened.kind, Kind::kConnect) << piece;
    EXPECT_EQ(opened.target, "worker-7.svc:7000");
    EXPECT_EQ(opened.rest, absl::StrCat(kPreface, "frames")) << piece;
  }
}

TEST(ClientOpeningTest, TheTargetOfConnectIsTakenAsItIs) {
  for (const char* target : {"10.0.0.7:7000", "[fd00::7]:7000", "unix:/run/w"}) {
    EXPECT_EQ(Open(absl::StrCat("CONNECT ", target, " HTTP/1.1\r\n\r\n")).target, target);
  }
}

TEST(ClientOpeningTest, ATargetWithoutAPortIsOneOfHttps) {
  for (const char* target : {"name", "10.0.0.7", "[fd00::7]"}) {
    EXPECT_EQ(Open(absl::StrCat("CONNECT ", target, " HTTP/1.1\r\n\r\n")).target, absl::StrCat(target, ":443"));
  }
}

// The bytes after a CONNECT request belong to the tunnel (RFC 9110, section 9.3.6).
TEST(ClientOpeningTest, ABodyOfConnectIsNoBody) {
  const Opened opened = Open("CONNECT a:1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(opened.kind, Kind::kConnect);
  EXPECT_EQ(opened.rest, "abc");
}

TEST(ClientOpeningTest, OtherMethodsAreRefusedWithAWord) {
  for (const char* method : {"GET", "POST", "PUT", "OPTIONS", "PRINT"}) {
    const std::string request = absl::StrCat(method, " / HTTP/1.1\r\nHost: a\r\n\r\nbody");
    for (const size_t piece : {size_t{1}, SIZE_MAX}) {
      const Opened opened = Open(request, piece);
      EXPECT_EQ(opened.kind, Kind::kOther) << method;
      EXPECT_THAT(opened.refusal, StartsWith("HTTP/1.1 501 Not Implemented\r\nConnection: close\r\n"));
      EXPECT_THAT(opened.refusal, HasSubstr("no_proxy"));
      EXPECT_EQ(opened.rest, request) << "a tunnel passes all of it on";
    }
  }
}

TEST(ClientOpeningTest, ARefusalSaysHowLongItIs) {
  const std::string refusal = Open("GET / HTTP/1.1\r\n\r\n").refusal;
  const size_t body = refusal.find("\r\n\r\n") + 4;
  EXPECT_THAT(refusal, HasSubstr(absl::StrCat("Content-Length: ", refusal.size() - body, "\r\n")));
  EXPECT_THAT(refusal, EndsWith("\n"));
}

TEST(ClientOpeningTest, WhatIsAlmostHttpIsABadRequest) {
  for (const char* request : {"CONNECT\r\n\r\n", "CONNECT a:1 HTTP/9.9\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSX\r\n\r\n",
                              "G@T / HTTP/1.1\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\nno colon\r\n\r\n"}) {
    const Opened opened = Open(request);
    EXPECT_EQ(opened.kind, Kind::kOther) << request;
    EXPECT_THAT(opened.refusal, StartsWith("HTTP/1.1 400 Bad Request\r\n")) << request;
  }
}

TEST(ClientOpeningTest, AHeadThatIsTooLargeIsRefusedBeforeItsEnd) {
  ClientOpening opening;
  opening.Read("CONNECT a:1 HTTP/1.1\r\nX: ");
  size_t bytes = 0;
  for (; opening.kind() == Kind::kUnknown && bytes < 2 * ClientOpening::kMaxHeadBytes; bytes += 1024) {
    opening.Read(std::string(1024, 'x'));
  }
  EXPECT_EQ(opening.kind(), Kind::kOther);
  EXPECT_LE(bytes, ClientOpening::kMaxHeadBytes + 1024);
  EXPECT_THAT(opening.refusal(), HasSubstr("the head is too large"));
}

TEST(ClientOpeningTest, AHeadThatIsAlmostTooLargeIsTaken) {
  std::string head = "CONNECT a:1 HTTP/1.1\r\n";
  while (head.size() < ClientOpening::kMaxHeadBytes - 600) absl::StrAppend(&head, "X: ", std::string(500, 'x'), "\r\n");
  EXPECT_EQ(Open(head + "\r\n").kind, Kind::kConnect);
}

// With a parse of all bytes for each byte, one head of this size takes 2.7 s without optimisation.
TEST(ClientOpeningTest, AHeadThatComesByteByByteCostsLittle) {
  std::string head = "CONNECT a:1 HTTP/1.1\r\n";
  while (head.size() < ClientOpening::kMaxHeadBytes - 600) absl::StrAppend(&head, "X: ", std::string(10, 'x'), "\r\n");
  const auto cpu_ticks = std::clock();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Open(head + "\r\n", 1).kind, Kind::kConnect);
  EXPECT_LT(std::clock() - cpu_ticks, CLOCKS_PER_SEC);
}

TEST(ClientOpeningTest, WhatIsNoHttpIsKnownByItsFirstByteAndGetsNoAnswer) {
  const std::string hello("\x16\x03\x01\x02\x00\x01", 6);
  for (const std::string& bytes : {hello, std::string("\0\0", 2), std::string("get / http"), std::string("\r\n")}) {
    ClientOpening opening;
    EXPECT_EQ(opening.Read(bytes.substr(0, 1)), Kind::kOther);
    EXPECT_THAT(opening.refusal(), IsEmpty());
    const Opened opened = Open(bytes);
    EXPECT_EQ(opened.kind, Kind::kOther);
    EXPECT_EQ(opened.rest, bytes);
  }
}

// A client within its tunnel may use a proxy of its own.
TEST(ClientOpeningTest, WithinATunnelAllButHttp2IsBytesFromTheFirstOnThatDiffers) {
  for (const std::string& bytes : {std::string("CONNECT a:1 HTTP/1.1\r\n\r\nmore"), std::string(kSocksGreeting),
                                   std::string("PRI * HTTP/1.1\r\n"), std::string("GET"), std::string("PING")}) {
    ClientOpening opening(/*in_tunnel=*/true);
    EXPECT_EQ(opening.Read(bytes), Kind::kOther) << bytes;
    EXPECT_EQ(opening.TakeReply(), "");
    EXPECT_EQ(opening.TakeAll(), bytes);
  }
}

std::string Request(const std::string& content_type) {
  return raw::Headers(1, {{":method", "POST"}, {":path", "/s/m"}, {"content-type", content_type}});
}

TEST(ClientOpeningTest, WithinATunnelHttp2IsForWorkersIfItsFirstRequestIsGrpc) {
  for (const auto& [type, kind] : {std::pair("application/grpc", Kind::kHttp2),
                                   {"application/grpc+proto", Kind::kHttp2},
                                   {"application/proto", Kind::kOther},
                                   {"application/grpc-web", Kind::kOther}}) {
    const std::string bytes = absl::StrCat(kPreface, raw::Settings(), Request(type), raw::Data(1, "?"), "hal");
    ClientOpening at_once(/*in_tunnel=*/true);
    EXPECT_EQ(at_once.Read(bytes), kind) << type;
    EXPECT_EQ(at_once.TakeReply(), "") << "the server's SETTINGS are the only ones";
    EXPECT_FALSE(at_once.answered_http2());
    EXPECT_EQ(at_once.TakeAll(), bytes);
    EXPECT_EQ(at_once.PassOn(raw::SettingsAck()), raw::SettingsAck());
  }
}

TEST(ClientOpeningTest, WithinATunnelAClientOfHttp2MayWaitForSettings) {
  ClientOpening opening(/*in_tunnel=*/true);
  EXPECT_EQ(opening.Read("PRI * "), Kind::kUnknown);
  EXPECT_EQ(opening.TakeReply(), "");
  EXPECT_EQ(opening.Read(absl::string_view(kPreface).substr(6)), Kind::kUnknown);
  EXPECT_EQ(opening.TakeReply(), FirstRequest::kSettings);
  EXPECT_EQ(opening.Read(raw::Settings()), Kind::kUnknown);
  EXPECT_EQ(opening.TakeReply(), "") << "once";
  const std::string ack = raw::SettingsAck();
  EXPECT_EQ(opening.Read(absl::StrCat(Request("text/plain"), ack.substr(0, 4))), Kind::kOther);
  EXPECT_EQ(opening.TakeAll(), absl::StrCat(kPreface, raw::Settings(), Request("text/plain")));
  EXPECT_EQ(opening.PassOn(absl::StrCat(ack.substr(4), raw::Ping())), raw::Ping());
  EXPECT_EQ(opening.PassOn(ack), ack) << "of the worker's SETTINGS";
}

TEST(TunnelRefusalTest, SpeaksTheProtocolOfTheClient) {
  EXPECT_EQ(TunnelRefusal("", "why"), "");
  EXPECT_EQ(TunnelRefusal("\x16\x03\x01", "why"), std::string("\x15\x03\x03\x00\x02\x02\x31", 7)) << "access_denied";
  EXPECT_EQ(TunnelRefusal("GET / HTTP/1.1\r\n", "why"), Http1Refusal(403, "why"));
  EXPECT_EQ(TunnelRefusal("\x01", "why"), "");
  const std::string refusal = TunnelRefusal(absl::StrCat(kPreface, "frames"), "why");
  EXPECT_EQ(refusal, absl::StrCat(raw::GoAway(0, 2).replace(2, 1, "\x0b"), "why"));
}

TEST(ConnectRefusalTest, HasTheReasonInItsBodyAndInProxyStatus) {
  EXPECT_EQ(ConnectRefusal(absl::UnavailableError("connect to \"a\\b\xe9\""), "sluice-1"),
            "HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n"
            "Proxy-Status: sluice-1; error=destination_unavailable; details=\"connect to \\\"a\\\\b?\\\"\"\r\n"
            "Content-Type: text/plain\r\nContent-Length: 18\r\n\r\nconnect to \"a\\b\xe9\"\n");
}

TEST(ConnectRefusalTest, HasTheStatusOfTheReason) {
  const auto expect = [](const absl::Status& why, const std::string& status, const std::string& error) {
    const std::string refusal = ConnectRefusal(why, "p");
    EXPECT_THAT(refusal, ::testing::StartsWith(absl::StrCat("HTTP/1.1 ", status, "\r\n")));
    EXPECT_THAT(refusal, ::testing::HasSubstr(absl::StrCat("p; error=", error, "; ")));
  };
  expect(absl::InvalidArgumentError("a"), "400 Bad Request", "http_request_error");
  expect(absl::PermissionDeniedError("a"), "403 Forbidden", "http_request_denied");
  expect(absl::NotFoundError("a"), "502 Bad Gateway", "dns_error");
  expect(absl::UnavailableError("a"), "502 Bad Gateway", "destination_unavailable");
  expect(absl::ResourceExhaustedError("a"), "502 Bad Gateway", "proxy_internal_error");
  expect(absl::DeadlineExceededError("a"), "504 Gateway Timeout", "connection_timeout");
}

TEST(ProtocolOfTest, IsKnownByTheFirstBytes) {
  EXPECT_EQ(ClientOpening::ProtocolOf("\x16\x03"), "TLS");
  EXPECT_EQ(ClientOpening::ProtocolOf("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore"), ClientOpening::kPlaintextHttp2);
  EXPECT_EQ(ClientOpening::ProtocolOf("GET / HTTP/1.1"), "HTTP/1.1");
  EXPECT_EQ(ClientOpening::ProtocolOf("\x01"), "an unknown protocol");
  EXPECT_EQ(ClientOpening::ProtocolOf(""), "nothing");
}

}  // namespace
}  // namespace sluice
