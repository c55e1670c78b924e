#include "lib/grpc_wire/response_head.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;

TEST(ResponseHeadTest, HeadersOfAnAnswer) {
  const Metadata metadata = {{"x-shard", "7"}, {"set-cookie", "a=b"}};
  EXPECT_THAT(ToHeaders(ResponseHead{.encoding = "gzip", .metadata = &metadata}),
              ElementsAre(HeaderField{":status", "200"}, HeaderField{"content-type", "application/grpc"},
                          HeaderField{"grpc-encoding", "gzip"}, HeaderField{"grpc-accept-encoding", "identity,gzip"},
                          HeaderField{"x-shard", "7"}, HeaderField{"set-cookie", "a=b", true}));
  EXPECT_THAT(ToHeaders(ResponseHead{}),
              ElementsAre(HeaderField{":status", "200"}, HeaderField{"content-type", "application/grpc"},
                          HeaderField{"grpc-accept-encoding", "identity,gzip"}));
}

TEST(ResponseHeadTest, TrailersOfSuccess) {
  EXPECT_THAT(ToTrailers(absl::OkStatus(), "", {}), ElementsAre(HeaderField{"grpc-status", "0"}));
}

TEST(ResponseHeadTest, TrailersOfAnError) {
  EXPECT_THAT(ToTrailers(absl::NotFoundError("no key \xc3\xa9\n"), std::string("\x08\x05", 2), {{"x-left", "3"}}),
              ElementsAre(HeaderField{"grpc-status", "5"}, HeaderField{"grpc-message", "no key %C3%A9%0A"},
                          HeaderField{"grpc-status-details-bin", "CAU"}, HeaderField{"x-left", "3"}));
}

TEST(ResponseHeadTest, TrailersAlone) {
  EXPECT_THAT(ToTrailersOnly(absl::UnavailableError(""), "", {}),
              ElementsAre(HeaderField{":status", "200"}, HeaderField{"content-type", "application/grpc"},
                          HeaderField{"grpc-status", "14"}));
}

}  // namespace
}  // namespace sluice
