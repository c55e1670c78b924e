#include "lib/storage/stripe/manifest.h"

#include <cstdint>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/stripe/crc32c.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

v1::Manifest ValidManifest() {
  v1::Manifest manifest;
  manifest.set_file_bytes(25);
  manifest.set_sru_bytes(10);
  manifest.set_workers(2);
  manifest.set_replicas(1);
  manifest.set_file_crc32c(7);
  for (uint32_t crc : {1u, 2u, 3u}) manifest.add_sru_crc32c(crc);
  return manifest;
}

void ExpectRefused(const v1::Manifest& manifest, const std::string& message) {
  const absl::Status status = ValidateManifest(manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << manifest.DebugString();
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

void ExpectUndecodable(const std::string& stored, absl::StatusCode code, const std::string& message) {
  const absl::Status status = DecodeManifest(stored).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(ValidateManifestTest, TakesAFileOfAnyLengthThatItsChecksumsCover) {
  v1::Manifest manifest = ValidManifest();
  for (const uint64_t bytes : {21, 29, 30}) {
    manifest.set_file_bytes(bytes);
    EXPECT_TRUE(ValidateManifest(manifest).ok()) << bytes;
  }
}

TEST(ValidateManifestTest, TakesAnEmptyFile) {
  v1::Manifest manifest = ValidManifest();
  manifest.set_file_bytes(0);
  manifest.clear_sru_crc32c();
  EXPECT_TRUE(ValidateManifest(manifest).ok());
}

TEST(ValidateManifestTest, NamesEveryFieldThatIsOutOfBounds) {
  const auto with = [](auto change) {
    v1::Manifest manifest = ValidManifest();
    change(manifest);
    return manifest;
  };
  ExpectRefused(with([](auto& m) { m.set_sru_bytes(0); }), "sru_bytes is 0; it must be 1 to 67108864");
  ExpectRefused(with([](auto& m) { m.set_sru_bytes(kMaxSruBytes + 1); }), "sru_bytes is 67108865");
  ExpectRefused(with([](auto& m) { m.set_workers(0); }), "workers is 0; it must be 1 to 65536");
  ExpectRefused(with([](auto& m) { m.set_workers(kMaxStripeWorkers + 1); }), "workers is 65537");
  ExpectRefused(with([](auto& m) { m.set_replicas(0); }), "replicas is 0; it must be 1 to 2");
  ExpectRefused(with([](auto& m) { m.set_replicas(3); }), "replicas is 3; it must be 1 to 2");
  ExpectRefused(with([](auto& m) { m.set_sru_bytes(kMaxSruBytes), m.set_workers(kMaxStripeWorkers); }),
                "workers * sru_bytes is 4398046511104");
}

TEST(ValidateManifestTest, RefusesLengthsThatWouldOverflow) {
  v1::Manifest manifest = ValidManifest();
  for (const uint64_t bytes : {std::numeric_limits<uint64_t>::max(), kMaxSrus * 10 + 1}) {
    manifest.set_file_bytes(bytes);
    ExpectRefused(manifest, "file_bytes is ");
  }
}

TEST(ValidateManifestTest, RefusesTooFewAndTooManyChecksums) {
  v1::Manifest manifest = ValidManifest();
  manifest.set_file_bytes(20);
  ExpectRefused(manifest, "sru_crc32c has 3 entries; a file of 20 bytes in SRUs of 10 has 2");
  manifest.set_file_bytes(31);
  ExpectRefused(manifest, "has 4");
}

TEST(ManifestTest, ComesBackAsItWasStored) {
  const v1::Manifest manifest = ValidManifest();
  const auto decoded = DecodeManifest(EncodeManifest(manifest));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->SerializeAsString(), manifest.SerializeAsString());
}

// The format is used on disks and on the network, so it must not change without a new version.
TEST(ManifestTest, IsStoredInTheDocumentedForm) {
  const std::string message = ValidManifest().SerializeAsString();
  const std::string stored = EncodeManifest(ValidManifest());
  const uint32_t crc = Crc32c(message);
  ASSERT_EQ(stored.size(), kManifestHeaderBytes + message.size());
  EXPECT_EQ(stored.substr(0, 8), "SLUICEMF");
  EXPECT_EQ(stored.substr(8, 4), std::string("\x01\0\0\0", 4));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(static_cast<unsigned char>(stored[12 + i]), (crc >> (8 * i)) & 0xff) << i;
  EXPECT_EQ(stored.substr(16, 8), std::string(1, static_cast<char>(message.size())) + std::string(7, '\0'));
  EXPECT_EQ(stored.substr(24), message);
}

TEST(ManifestTest, TellsEveryTruncation) {
  const std::string stored = EncodeManifest(ValidManifest());
  for (size_t length = 0; length < stored.size(); ++length)
    ExpectUndecodable(stored.substr(0, length), absl::StatusCode::kDataLoss, "truncated");
}

TEST(ManifestTest, TellsAFlippedBitInEveryByte) {
  const std::string stored = EncodeManifest(ValidManifest());
  for (size_t i = 0; i < stored.size(); ++i) {
    std::string flipped = stored;
    flipped[i] ^= 0x10;
    EXPECT_FALSE(DecodeManifest(flipped).ok()) << i;
    if (i >= kManifestHeaderBytes) ExpectUndecodable(flipped, absl::StatusCode::kDataLoss, "CRC32C expected");
  }
}

TEST(ManifestTest, TellsWhatIsNoManifest) {
  ExpectUndecodable(std::string(100, 'x'), absl::StatusCode::kInvalidArgument, "not a manifest");
  ExpectUndecodable("x", absl::StatusCode::kInvalidArgument, "not a manifest");
}

TEST(ManifestTest, TellsAnotherVersion) {
  std::string stored = EncodeManifest(ValidManifest());
  stored[8] = 7;
  ExpectUndecodable(stored, absl::StatusCode::kFailedPrecondition, "version 7; this build reads version 1");
}

TEST(ManifestTest, TellsBytesAfterItsEnd) {
  ExpectUndecodable(EncodeManifest(ValidManifest()) + "more", absl::StatusCode::kDataLoss, "4 bytes after its end");
}

TEST(ManifestTest, TellsALengthThatNoManifestHas) {
  std::string stored = EncodeManifest(ValidManifest());
  for (int i = 16; i < 24; ++i) stored[i] = '\xff';
  ExpectUndecodable(stored, absl::StatusCode::kDataLoss, "18446744073709551615");
}

TEST(ManifestTest, IsValidatedWhenItIsDecoded) {
  v1::Manifest manifest = ValidManifest();
  manifest.set_workers(0);
  ExpectUndecodable(EncodeManifest(manifest), absl::StatusCode::kInvalidArgument, "workers is 0");
}

TEST(ManifestTest, TellsAMessageThatIsNone) {
  // A valid header, around a field of length 127 that is missing.
  const std::string message = "\x0a\x7f";
  std::string stored = EncodeManifest(ValidManifest()).substr(0, kManifestHeaderBytes);
  for (int i = 0; i < 4; ++i) stored[12 + i] = static_cast<char>(Crc32c(message) >> (8 * i));
  stored[16] = static_cast<char>(message.size());
  ExpectUndecodable(stored + message, absl::StatusCode::kDataLoss, "not a Manifest message");
}

}  // namespace
}  // namespace sluice
