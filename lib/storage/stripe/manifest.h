#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "sluice/v1/manifest.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// The format of the manifest of a striped file, on disk and on the network:
//   offset  bytes
//        0      8  "SLUICEMF"
//        8      4  version of this format, now 1
//       12      4  CRC32C of the message
//       16      8  length of the message
//       24      -  the message: a serialized v1::Manifest
// Numbers are little-endian. The length distinguishes a truncated manifest from a corrupted one.
namespace sluice {

inline constexpr uint32_t kMaxSruBytes = 64 << 20;
inline constexpr uint32_t kMaxStripeWorkers = 65536;
inline constexpr uint64_t kMaxSrus = uint64_t{1} << 24;            // 64 MiB of checksums
inline constexpr uint64_t kMaxDataBlockBytes = uint64_t{1} << 40;  // workers * sru_bytes

inline constexpr size_t kManifestHeaderBytes = 24;
inline constexpr size_t kMaxStoredManifestBytes = kManifestHeaderBytes + 4 * kMaxSrus + 128;

// Returns InvalidArgument with the field, its value and its bound: sru_bytes 1 to 64 MiB, workers 1 to 65536, replicas
// 1 to workers.
absl::Status ValidateStripeShape(uint32_t sru_bytes, uint32_t workers, uint32_t replicas);

// Checks the shape, the bound of 2^24 SRUs, and the number of checksums, which must equal the number of SRUs. On a
// valid manifest, arithmetic on the fields does not overflow 64 bits.
absl::Status ValidateManifest(const v1::Manifest& manifest);

// Identifies one striping of a file.
uint32_t ManifestCrc32c(const v1::Manifest& manifest);

std::string EncodeManifest(const v1::Manifest& manifest);

// Returns a valid manifest, or DataLoss (truncated, too many bytes, wrong checksum), InvalidArgument (not a manifest at
// all, or fields outside of their bounds) or FailedPrecondition (another version).
absl::StatusOr<v1::Manifest> DecodeManifest(std::string_view stored);

}  // namespace sluice
