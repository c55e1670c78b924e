#include "lib/storage/stripe/manifest.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/storage/stripe/crc32c.h"

namespace sluice {
namespace {

constexpr std::string_view kMagic = "SLUICEMF";
constexpr uint32_t kVersion = 1;

template <class T>
void AppendLittleEndian(T value, std::string& out) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

template <class T>
T ReadLittleEndian(std::string_view bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= T{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

absl::Status OutOfBounds(absl::string_view field, uint64_t value, uint64_t low, uint64_t high) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; it must be ", low, " to ", high));
}

absl::Status Truncated(size_t have, uint64_t want) {
  return absl::DataLossError(absl::StrCat("manifest is truncated: ", have, " bytes of ", want));
}

// Returns the message within the stored format after verifying its checksum.
absl::StatusOr<std::string_view> UnwrapManifest(std::string_view stored) {
  if (stored.substr(0, kMagic.size()) != kMagic.substr(0, stored.size()))
    return absl::InvalidArgumentError("not a manifest: it does not begin with SLUICEMF");
  if (stored.size() < kManifestHeaderBytes) return Truncated(stored.size(), kManifestHeaderBytes);
  const auto version = ReadLittleEndian<uint32_t>(stored.substr(8));
  if (version != kVersion)
    return absl::FailedPreconditionError(
        absl::StrCat("manifest is of version ", version, "; this build reads version ", kVersion));
  const auto expected = ReadLittleEndian<uint32_t>(stored.substr(12));
  const auto length = ReadLittleEndian<uint64_t>(stored.substr(16));
  if (length > kMaxStoredManifestBytes - kManifestHeaderBytes)
    return absl::DataLossError(absl::StrCat("manifest is corrupted: it claims a message of ", length,
                                            " bytes; the largest has ",
                                            kMaxStoredManifestBytes - kManifestHeaderBytes));
  const std::string_view message = stored.substr(kManifestHeaderBytes);
  if (message.size() < length) return Truncated(stored.size(), kManifestHeaderBytes + length);
  if (message.size() > length)
    return absl::DataLossError(
        absl::StrCat("manifest is corrupted: ", message.size() - length, " bytes after its end"));
  const uint32_t found = Crc32c(message);
  if (found != expected)
    return absl::DataLossError(
        absl::StrFormat("manifest is corrupted: CRC32C expected %08x, found %08x", expected, found));
  return message;
}

}  // namespace

absl::Status ValidateStripeShape(uint32_t sru_bytes, uint32_t workers, uint32_t replicas) {
  if (sru_bytes < 1 || sru_bytes > kMaxSruBytes) return OutOfBounds("sru_bytes", sru_bytes, 1, kMaxSruBytes);
  if (workers < 1 || workers > kMaxStripeWorkers) return OutOfBounds("workers", workers, 1, kMaxStripeWorkers);
  if (replicas < 1 || replicas > workers) return OutOfBounds("replicas", replicas, 1, workers);
  const uint64_t block_bytes = uint64_t{workers} * sru_bytes;
  if (block_bytes > kMaxDataBlockBytes) return OutOfBounds("workers * sru_bytes", block_bytes, 1, kMaxDataBlockBytes);
  return absl::OkStatus();
}

absl::Status ValidateManifest(const v1::Manifest& manifest) {
  absl::Status shape = ValidateStripeShape(manifest.sru_bytes(), manifest.workers(), manifest.replicas());
  if (!shape.ok()) return shape;
  const uint64_t max_file_bytes = kMaxSrus * manifest.sru_bytes();
  if (manifest.file_bytes() > max_file_bytes)
    return OutOfBounds("file_bytes", manifest.file_bytes(), 0, max_file_bytes);
  const uint64_t srus = (manifest.file_bytes() + manifest.sru_bytes() - 1) / manifest.sru_bytes();
  const auto checksums = static_cast<uint64_t>(manifest.sru_crc32c_size());
  if (checksums != srus)
    return absl::InvalidArgumentError(absl::StrCat("sru_crc32c has ", checksums, " entries; a file of ",
                                                   manifest.file_bytes(), " bytes in SRUs of ", manifest.sru_bytes(),
                                                   " has ", srus));
  return absl::OkStatus();
}

uint32_t ManifestCrc32c(const v1::Manifest& manifest) {
  return Crc32c(manifest.SerializeAsString());
}

std::string EncodeManifest(const v1::Manifest& manifest) {
  const std::string message = manifest.SerializeAsString();
  std::string stored(kMagic);
  AppendLittleEndian(kVersion, stored);
  AppendLittleEndian(Crc32c(message), stored);
  AppendLittleEndian(uint64_t{message.size()}, stored);
  return stored + message;
}

absl::StatusOr<v1::Manifest> DecodeManifest(std::string_view stored) {
  const absl::StatusOr<std::string_view> message = UnwrapManifest(stored);
  if (!message.ok()) return message.status();
  v1::Manifest manifest;
  if (!manifest.ParseFromArray(message->data(), static_cast<int>(message->size())))
    return absl::DataLossError("manifest is corrupted: its checksum is right, but it is not a Manifest message");
  absl::Status status = ValidateManifest(manifest);
  if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("manifest: ", status.message()));
  return manifest;
}

}  // namespace sluice
