#pragma once

#include <cstdint>

#include "sluice/v1/manifest.pb.h"

#include "absl/status/statusor.h"

namespace sluice {

// The worker that holds replica `replica` of an SRU.
inline uint32_t StripeWorker(uint64_t sru, uint32_t replica, uint32_t workers) {
  return static_cast<uint32_t>((sru + replica) % workers);
}

// Computes the places of the bytes of one striped file from its valid manifest. An immutable value. SRUs and data
// blocks are counted from 0; an argument must be within its count.
class StripeLayout {
 public:
  // Returns the errors of ValidateManifest.
  static absl::StatusOr<StripeLayout> Create(v1::Manifest manifest);

  const v1::Manifest& manifest() const { return manifest_; }
  uint64_t FileBytes() const { return manifest_.file_bytes(); }
  uint32_t SruBytes() const { return manifest_.sru_bytes(); }
  uint32_t Workers() const { return manifest_.workers(); }
  uint32_t Replicas() const { return manifest_.replicas(); }
  // Identifies one striping of a file.
  uint32_t ManifestCrc32c() const { return manifest_crc32c_; }

  uint64_t SruCount() const { return static_cast<uint64_t>(manifest_.sru_crc32c_size()); }
  uint64_t SruOffset(uint64_t sru) const { return sru * SruBytes(); }  // in the file
  uint32_t SruLength(uint64_t sru) const;                              // only the last SRU may be shorter
  uint32_t SruCrc32c(uint64_t sru) const { return manifest_.sru_crc32c(static_cast<int>(sru)); }

  // Replica `replica` of an SRU is in stripe file `replica` on this worker, at this offset.
  uint32_t Worker(uint64_t sru, uint32_t replica) const { return StripeWorker(sru, replica, Workers()); }
  uint64_t OffsetInStripe(uint64_t sru) const { return sru / Workers() * SruBytes(); }

  // The number of SRUs, the SRUs, and the number of bytes of stripe file `replica` of a worker.
  uint64_t StripeSrus(uint32_t worker, uint32_t replica) const;
  uint64_t SruInStripe(uint32_t worker, uint32_t replica, uint64_t index) const;
  uint64_t StripeBytes(uint32_t worker, uint32_t replica) const;

  // A data block is a stripe across all workers: SRUs [first, first + count), fewer in the last block.
  struct SruRange {
    uint64_t first = 0;
    uint64_t count = 0;
    friend bool operator==(const SruRange&, const SruRange&) = default;
  };
  uint64_t BlockBytes() const { return uint64_t{Workers()} * SruBytes(); }  // of a full block
  uint64_t BlockCount() const { return (SruCount() + Workers() - 1) / Workers(); }
  SruRange BlockSrus(uint64_t block) const;
  uint64_t BlockOffset(uint64_t block) const { return block * BlockBytes(); }  // in the file
  uint64_t BlockLength(uint64_t block) const;

 private:
  explicit StripeLayout(v1::Manifest manifest);
  uint32_t FirstSru(uint32_t worker, uint32_t replica) const;

  v1::Manifest manifest_;
  uint32_t manifest_crc32c_;
};

}  // namespace sluice
