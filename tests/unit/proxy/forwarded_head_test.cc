#include "lib/proxy/forwarded_head.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::HasCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

HeaderList Request(const HeaderList& more = {}) {
  HeaderList headers = {{":method", "POST"},        {":scheme", "http"}, {":path", "/a.B/C"},
                        {":authority", "worker:1"}, {"te", "trailers"},  {"content-type", "application/grpc+proto"}};
  headers.insert(headers.end(), more.begin(), more.end());
  return headers;
}

ForwardedHead Parse(const HeaderList& more, absl::string_view worker_header = "") {
  absl::StatusOr<ForwardedHead> head = ParseForwardedHead(Request(more), worker_header);
  EXPECT_TRUE(head.ok()) << head.status();
  return head.ok() ? *std::move(head) : ForwardedHead();
}

TEST(ForwardedHeadTest, WhatGoesEndToEndStaysAsItIs) {
  const HeaderField secret{"authorization", "Bearer x", true};
  const HeaderList fields = {{"user-agent", "grpc-python/1.2"},
                             {"grpc-encoding", "gzip"},
                             {"grpc-accept-encoding", "identity, gzip"},
                             secret,
                             {"x-trace-bin", "AAEC"},
                             {"a", "1"},
                             {"a", "2"}};
  const ForwardedHead head = Parse(fields);
  EXPECT_EQ(head.path, "/a.B/C");
  EXPECT_EQ(head.authority, "worker:1");
  EXPECT_EQ(head.timeout, absl::InfiniteDuration());
  EXPECT_EQ(head.calls, 1);
  HeaderList sent = {{"content-type", "application/grpc+proto"}};
  sent.insert(sent.end(), fields.begin(), fields.end());
  EXPECT_EQ(head.end_to_end, sent) << "in their order, and secrets are secret still";
}

// Workers believe them, since they come with the certificate of the proxy.
TEST(ForwardedHeadTest, IdentitiesThatAClientInventsEndHere) {
  HeaderList invented;
  for (const char* name : {"forwarded",
                           "x-forwarded-for",
                           "x-forwarded-client-cert",
                           "x-forwarded-user",
                           "x-real-ip",
                           "l5d-client-id",
                           "x-envoy-external-address",
                           "x-remote-user",
                           "x-ssl-client-s-dn",
                           "x-goog-iap-jwt-assertion",
                           "sluice-client",
                           "sluice-invented",
                           "client-cert",
                           "client-cert-chain",
                           "ssl-client-verify",
                           "x-auth-request-user",
                           "x-amzn-mtls-clientcert-subject",
                           "x-consumer-username",
                           "x-ms-client-principal-name",
                           "cf-connecting-ip"}) {
    invented.push_back({name, "spiffe://cluster.local/ns/admin/sa/root"});
  }
  EXPECT_THAT(Parse(invented).end_to_end, ElementsAre(HeaderField{"content-type", "application/grpc+proto"}));
  EXPECT_THAT(Parse({{"x-request-id", "7"}, {"forwarded-by-me", "1"}, {"x-envoy-max-retries", "1"}}).end_to_end,
              ::testing::SizeIs(4));
  EXPECT_THAT(Parse({{"x-forwarded-host", "w:1"}}, "x-forwarded-host").end_to_end,
              Contains(HeaderField{"x-forwarded-host", "w:1"}))
      << "the config has chosen it to name the worker";
  ForwardedHead head = Parse({});
  head.client = "uid 7";
  EXPECT_THAT(ToHeaders(head, "w:1", false, absl::InfiniteDuration()), Contains(HeaderField{"sluice-client", "uid 7"}));
}

TEST(ForwardedHeadTest, FieldsOfOneHopEndHere) {
  const ForwardedHead head = Parse({{"host", "other:2"},
                                    {"keep-alive", "1"},
                                    {"proxy-authorization", "Basic x", true},
                                    {"proxy-connection", "keep-alive"},
                                    {"grpc-timeout", "1S"}});
  EXPECT_THAT(head.end_to_end, ElementsAre(HeaderField{"content-type", "application/grpc+proto"}));
  EXPECT_EQ(head.authority, "worker:1");
}

TEST(ForwardedHeadTest, TheNewHeadIsOneOfGrpc) {
  ForwardedHead head = Parse({{"a", "1"}});
  EXPECT_THAT(ToHeaders(head, "10.0.0.7:7000", false, absl::Milliseconds(1500)),
              ElementsAre(HeaderField{":method", "POST"}, HeaderField{":scheme", "http"},
                          HeaderField{":path", "/a.B/C"}, HeaderField{":authority", "10.0.0.7:7000"},
                          HeaderField{"te", "trailers"}, HeaderField{"grpc-timeout", "1500000u"},
                          HeaderField{"content-type", "application/grpc+proto"}, HeaderField{"a", "1"}));
  EXPECT_THAT(ToHeaders(head, "w", true, absl::InfiniteDuration()), Contains(HeaderField{":scheme", "https"}));
  for (const HeaderField& field : ToHeaders(head, "w", true, absl::InfiniteDuration())) {
    EXPECT_NE(field.name, "grpc-timeout");
  }
  EXPECT_THAT(ToHeaders(head, "w", false, absl::ZeroDuration()), Contains(HeaderField{"grpc-timeout", "1n"}));
}

TEST(ForwardedHeadTest, TheTimeoutIsThatOfTheClient) {
  EXPECT_EQ(Parse({{"grpc-timeout", "250m"}}).timeout, absl::Milliseconds(250));
  EXPECT_EQ(Parse({{"grpc-timeout", "99999999H"}}).timeout, absl::Hours(99999999));
  EXPECT_THAT(ParseForwardedHead(Request({{"grpc-timeout", "soon"}}), "").status(),
              HasCode(absl::StatusCode::kInternal));
}

TEST(ForwardedHeadTest, AFanOutHasANameAndAWeightWhichTheWorkerDoesNotGet) {
  const ForwardedHead head = Parse({{"sluice-block", "query-17"}, {"sluice-weight", "64"}});
  EXPECT_EQ(head.block, "query-17");
  EXPECT_EQ(head.calls, 64);
  EXPECT_THAT(head.end_to_end, ElementsAre(HeaderField{"content-type", "application/grpc+proto"}));
  EXPECT_EQ(Parse({{"sluice-block", std::string(64, 'x')}, {"sluice-weight", "65536"}}).calls, kMaxWeight);
}

TEST(ForwardedHeadTest, ACallHasAClassWhichTheWorkerDoesNotGet) {
  EXPECT_EQ(Parse({}).traffic_class, "");
  const ForwardedHead head = Parse({{"sluice-class", "scan"}});
  EXPECT_EQ(head.traffic_class, "scan");
  EXPECT_THAT(head.end_to_end, ElementsAre(HeaderField{"content-type", "application/grpc+proto"}));
}

TEST(ForwardedHeadTest, AFanOutThatIsOutOfBoundsIsNamedWithItsBound) {
  const std::pair<HeaderField, const char*> cases[] = {
      {{"sluice-weight", "0"}, "sluice-weight \"0\" is not a number from 1 to 65536"},
      {{"sluice-weight", "65537"}, "sluice-weight \"65537\""},
      {{"sluice-weight", "-1"}, "sluice-weight \"-1\""},
      {{"sluice-weight", "many"}, "sluice-weight \"many\""},
      {{"sluice-weight", "99999999999999999999"}, "sluice-weight \"9"},
      {{"sluice-max-attempts", "6"}, "sluice-max-attempts \"6\" is not a number from 1 to 5"},
      {{"sluice-response-bytes", "4294967297"}, "\"4294967297\" is not a number from 0 to 4294967296"},
      {{"sluice-block", std::string(65, 'x')}, "sluice-block has 65 bytes; it has at most 64"},
  };
  for (const auto& [field, why] : cases) {
    const absl::Status refused = ParseForwardedHead(Request({field}), "").status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument)) << field.value;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(why));
  }
}

TEST(ForwardedHeadTest, BinaryValuesAreCheckedAndEncodedAnew) {
  for (const char* value : {"!", "AAA!", "A", "AAAA,!"}) {
    const absl::Status refused = ParseForwardedHead(Request({{"x-bin", value}}), "").status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument)) << value;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("is not base64"));
  }
  EXPECT_THAT(Parse({{"x-bin", ""}}).end_to_end, Contains(HeaderField{"x-bin", ""}));
  EXPECT_THAT(Parse({{"x-bin", "AAAA"}}).end_to_end, Contains(HeaderField{"x-bin", "AAAA"}));
  EXPECT_THAT(Parse({{"x-bin", "AA=="}}).end_to_end, Contains(HeaderField{"x-bin", "AA"}));
  const HeaderList joined = Parse({{"x-bin", "AAAA,BBBB"}}).end_to_end;
  EXPECT_THAT(joined, Contains(HeaderField{"x-bin", "AAAA"}));
  EXPECT_THAT(joined, Contains(HeaderField{"x-bin", "BBBB"}));
}

TEST(ForwardedHeadTest, AFieldMayNameTheWorkerWhichGetsItToo) {
  const HeaderField field{"x-worker", "10.0.0.7:7000"};
  const ForwardedHead head = Parse({field}, "x-worker");
  EXPECT_EQ(head.worker, "10.0.0.7:7000");
  EXPECT_THAT(head.end_to_end, Contains(field));
  EXPECT_THAT(Parse({field}).worker, IsEmpty()) << "no such field is configured";
  EXPECT_THAT(Parse({field}).end_to_end, Contains(field));
  EXPECT_THAT(Parse({}, "x-worker").worker, IsEmpty());
}

TEST(ForwardedHeadTest, EachProxyAddsItself) {
  ForwardedHead head = Parse({});
  ASSERT_TRUE(AddVia(head, "sluice-1").ok());
  EXPECT_THAT(ToHeaders(head, "w", false, absl::InfiniteDuration()), Contains(HeaderField{"via", "2 sluice-1"}));
  head = Parse({{"via", "1.1 front"}, {"a", "1"}, {"via", "2 sluice-1 (a comment)"}});
  ASSERT_TRUE(AddVia(head, "sluice-2").ok());
  EXPECT_EQ(head.via, "1.1 front, 2 sluice-1 (a comment), 2 sluice-2");
  const absl::Status circle = AddVia(head, "sluice-1");
  EXPECT_THAT(circle, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(circle.message()), HasSubstr("via is \"1.1 front, 2 sluice-1"));
}

TEST(ForwardedHeadTest, WhatIsNoCallOfGrpcIsRefused) {
  const auto with = [](const std::string& name, const std::string& value) {
    HeaderList headers = Request();
    for (HeaderField& field : headers) {
      if (field.name == name) field.value = value;
    }
    return ParseForwardedHead(headers, "").status();
  };
  EXPECT_THAT(with("content-type", "text/html"), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(with(":method", "GET"), HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(with(":path", "a.B/C"), HasCode(absl::StatusCode::kInternal));
  EXPECT_THAT(ParseForwardedHead({}, "").status(), Not(HasCode(absl::StatusCode::kOk)));
}

}  // namespace
}  // namespace sluice
