#include "lib/grpc_wire/metadata_fields.h"

#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/random_seed.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

Metadata Received(const HeaderList& fields) {
  Metadata metadata;
  for (HeaderField field : fields) AppendMetadata(std::move(field), metadata);
  return metadata;
}

TEST(MetadataFieldsTest, BinaryIsBase64WithoutPadding) {
  EXPECT_EQ(EncodeBinary(""), "");
  EXPECT_EQ(EncodeBinary("a"), "YQ");
  EXPECT_EQ(EncodeBinary("ab"), "YWI");
  EXPECT_EQ(EncodeBinary("abc"), "YWJj");
  EXPECT_EQ(EncodeBinary("\xfb\xff"), "+/8");
}

TEST(MetadataFieldsTest, BinaryIsTakenWithAndWithoutPadding) {
  EXPECT_THAT(Received({{"a-bin", "YQ"}, {"a-bin", "YQ=="}, {"a-bin", "YWI="}, {"a-bin", ""}}),
              ElementsAre(Pair("a-bin", "a"), Pair("a-bin", "a"), Pair("a-bin", "ab"), Pair("a-bin", "")));
}

TEST(MetadataFieldsTest, BinaryThatIsJoinedIsSplit) {
  EXPECT_THAT(Received({{"a-bin", "YQ==,YWI,YWJj"}, {"text", "YQ==,YWI"}}),
              ElementsAre(Pair("a-bin", "a"), Pair("a-bin", "ab"), Pair("a-bin", "abc"), Pair("text", "YQ==,YWI")));
}

TEST(MetadataFieldsTest, WhatGrpcDoesNotAllowIsLeftOut) {
  EXPECT_THAT(Received({{"a-bin", "Y"},
                        {"a-bin", "!!!!,YQ"},
                        {"text", "\xc3\xa9"},
                        {"text", "a\tb"},
                        {"key~", "x"},
                        {"", "x"},
                        {"good", "x"}}),
              ElementsAre(Pair("a-bin", "a"), Pair("good", "x")));
}

TEST(MetadataFieldsTest, FieldsOfTheProtocolAreNoMetadata) {
  EXPECT_THAT(Received({{":status", "200"},
                        {":authority", "x"},
                        {"content-type", "application/grpc"},
                        {"content-length", "5"},
                        {"te", "trailers"},
                        {"host", "x"},
                        {"user-agent", "x"},
                        {"trailer", "grpc-status"},
                        {"grpc-status", "0"},
                        {"grpc-message", "x"},
                        {"grpc-status-details-bin", "YQ"},
                        {"grpc-encoding", "gzip"},
                        {"grpc-accept-encoding", "gzip"},
                        {"grpc-timeout", "1S"},
                        {"grpc-message-type", "x"}}),
              IsEmpty());
}

TEST(MetadataFieldsTest, UnknownKeysOfGrpcAreKept) {
  EXPECT_THAT(Received({{"grpc-trace-bin", "YQ"}, {"grpc-previous-rpc-attempts", "2"}}),
              ElementsAre(Pair("grpc-trace-bin", "a"), Pair("grpc-previous-rpc-attempts", "2")));
}

TEST(MetadataFieldsTest, OnlyCredentialsAreSecret) {
  HeaderList fields;
  AppendFields({{"authorization", "a"},
                {"proxy-authorization", "a"},
                {"cookie", "a"},
                {"set-cookie", "a"},
                {"x-api-key", "a"},
                {"x-user", "a"}},
               fields);
  ASSERT_EQ(fields.size(), 6u);
  for (const HeaderField& field : fields) EXPECT_EQ(field.secret, field.name != "x-user") << field.name;
}

TEST(MetadataFieldsTest, ValidMetadataArrivesAsItWasSent) {
  const uint64_t seed = TakeRandomSeed().value;
  SCOPED_TRACE("replay with SLUICE_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 1000; ++round) {
    Metadata sent;
    for (uint64_t i = random() % 5; i > 0; --i) {
      const bool binary = random() % 2 == 0;
      std::string value;
      for (uint64_t size = random() % 20; size > 0; --size) {
        value.push_back(static_cast<char>(binary ? random() : '!' + random() % 94));
      }
      sent.emplace_back(binary ? "x-bin" : "x-text", value);
    }
    ASSERT_TRUE(ValidateMetadata(sent).ok());
    HeaderList fields;
    AppendFields(sent, fields);
    ASSERT_EQ(Received(fields), sent);
  }
}

TEST(MetadataFieldsTest, WhatIsReceivedMayBeSentOn) {
  const uint64_t seed = TakeRandomSeed().value;
  SCOPED_TRACE("replay with SLUICE_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto bytes = [&random](uint64_t most) {
    std::string text;
    for (uint64_t size = random() % (most + 1); size > 0; --size) text.push_back(static_cast<char>(random() % 130));
    return text;
  };
  for (int round = 0; round < 20'000; ++round) {
    const std::string name = bytes(4) + (random() % 2 == 0 ? "-bin" : "");
    const Metadata received = Received({{name, bytes(4)}});
    ASSERT_TRUE(ValidateMetadata(received).ok()) << ValidateMetadata(received);
  }
}

TEST(MetadataFieldsTest, ContentTypesOfGrpc) {
  for (const char* type : {"application/grpc", "application/grpc+proto", "application/grpc+json",
                           "application/grpc;charset=utf-8", "Application/GRPC"}) {
    EXPECT_TRUE(IsGrpcContentType(type)) << type;
  }
  for (const char* type : {"", "application/grpc-web", "application/grpcx", "application/json", "text/html",
                           " application/grpc", "application"}) {
    EXPECT_FALSE(IsGrpcContentType(type)) << type;
  }
}

TEST(MetadataFieldsTest, ASnippetIsShortAndPrintable) {
  EXPECT_EQ(Snippet("text/html; a=\"b\""), "text/html; a=\"b\"");
  EXPECT_EQ(Snippet("a\r\n\xff\x1b[31m"), "a????[31m");
  EXPECT_EQ(Snippet(std::string(1000, 'x')), std::string(64, 'x'));
}

}  // namespace
}  // namespace sluice
