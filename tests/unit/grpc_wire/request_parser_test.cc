#include "lib/grpc_wire/request_parser.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/grpc_wire/request.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

HeaderList Request() {
  return ToHeaders({.path = "/pkg.Service/Method", .authority = "worker:1"});
}

HeaderList With(absl::string_view name, absl::string_view value) {
  HeaderList headers = Request();
  for (HeaderField& field : headers) {
    if (field.name != name) continue;
    field.value = std::string(value);
    return headers;
  }
  headers.push_back({std::string(name), std::string(value)});
  return headers;
}

TEST(ParseRequestHeadTest, ReadsWhatAClientSends) {
  const Metadata metadata = {{"x-user", "me"}, {"trace-bin", std::string("\0\xff", 2)}};
  const auto head = ParseRequestHead(ToHeaders({.path = "/pkg.Service/Method",
                                                .authority = "worker:1",
                                                .tls = true,
                                                .timeout = absl::Seconds(3),
                                                .metadata = &metadata}));
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->path, "/pkg.Service/Method");
  EXPECT_EQ(head->authority, "worker:1");
  EXPECT_TRUE(head->tls);
  EXPECT_EQ(head->timeout, absl::Seconds(3));
  EXPECT_EQ(head->encoding, "");
  EXPECT_EQ(head->accept_encoding, "identity,gzip");
  EXPECT_THAT(head->user_agent, HasSubstr("grpc-sluice/"));
  EXPECT_EQ(head->metadata, metadata);
}

TEST(ParseRequestHeadTest, WithoutATimeoutThereIsNoEnd) {
  EXPECT_EQ(ParseRequestHead(Request())->timeout, absl::InfiniteDuration());
  EXPECT_FALSE(ParseRequestHead(Request())->tls);
}

TEST(ParseRequestHeadTest, ReadsTheFieldsOfOtherClients) {
  EXPECT_EQ(ParseRequestHead(With("grpc-encoding", "gzip"))->encoding, "gzip");
  EXPECT_TRUE(ParseRequestHead(With("content-type", "application/grpc+proto")).ok());
  EXPECT_THAT(ParseRequestHead(With("grpc-trace-bin", "YQ"))->metadata, ElementsAre(Pair("grpc-trace-bin", "a")));
}

TEST(ParseRequestHeadTest, HostStandsForAMissingAuthority) {
  HeaderList headers = Request();
  std::erase_if(headers, [](const HeaderField& field) { return field.name == ":authority"; });
  headers.push_back({"host", "other"});
  EXPECT_EQ(ParseRequestHead(headers)->authority, "other");
  EXPECT_EQ(ParseRequestHead(With("host", "other"))->authority, "worker:1");
}

struct Refused {
  const char* name;
  const char* value;
  absl::StatusCode code;
  const char* message;
  const char* http_status;
};

TEST(ParseRequestHeadTest, RefusesWhatIsNoCall) {
  for (const Refused& row :
       {Refused{"content-type", "text/html\n", absl::StatusCode::kInvalidArgument,
                "content-type \"text/html?\" is not application/grpc", "415"},
        Refused{":method", "GET", absl::StatusCode::kUnimplemented, ":method \"GET\" is not POST", "405"},
        Refused{":path", "", absl::StatusCode::kInternal, ":path \"\" does not begin with \"/\"", "400"},
        Refused{"grpc-timeout", "soon", absl::StatusCode::kInternal,
                "grpc-timeout \"soon\" is not one to eight digits and a unit", "400"}}) {
    const auto head = ParseRequestHead(With(row.name, row.value));
    EXPECT_EQ(head.status(), absl::Status(row.code, row.message));
    const HeaderList refusal = ToRefusal(head.status());
    EXPECT_EQ(refusal.front(), (HeaderField{":status", row.http_status}));
    EXPECT_THAT(refusal, Contains(HeaderField{"grpc-status", std::to_string(static_cast<int>(row.code))}));
  }
}

TEST(ParseRequestHeadTest, RefusesNoHeadersAtAll) {
  EXPECT_EQ(ParseRequestHead({}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
