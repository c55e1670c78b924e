#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sluice/v1/manifest.pb.h"

#include "lib/storage/stripe/crc32c.h"

namespace sluice {

// Builds the manifest of a file while the file grows, byte by byte. A plain value.
class ManifestBuilder {
 public:
  ManifestBuilder(uint32_t sru_bytes, uint32_t workers, uint32_t replicas) {
    manifest_.set_sru_bytes(sru_bytes);
    manifest_.set_workers(workers);
    manifest_.set_replicas(replicas);
  }

  uint64_t sru() const { return manifest_.file_bytes() / manifest_.sru_bytes(); }  // the SRU of the next byte
  size_t room() const { return manifest_.sru_bytes() - OffsetInSru(); }            // number of bytes until the next SRU

  // Adds at most room() bytes.
  void Add(std::string_view data) {
    if (OffsetInSru() == 0) manifest_.add_sru_crc32c(0);
    uint32_t& last = manifest_.mutable_sru_crc32c()->at(manifest_.sru_crc32c_size() - 1);
    last = Crc32c(data, last);
    manifest_.set_file_crc32c(Crc32c(data, manifest_.file_crc32c()));
    manifest_.set_file_bytes(manifest_.file_bytes() + data.size());
  }

  void BelongTo(uint32_t upper_manifest_crc32c) { manifest_.set_upper_manifest_crc32c(upper_manifest_crc32c); }

  const v1::Manifest& manifest() const { return manifest_; }

 private:
  uint64_t OffsetInSru() const { return manifest_.file_bytes() % manifest_.sru_bytes(); }

  v1::Manifest manifest_;
};

}  // namespace sluice
