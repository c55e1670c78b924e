#include "lib/storage/stripe/stripe_layout.h"

#include <algorithm>
#include <utility>

#include "lib/storage/stripe/manifest.h"

namespace sluice {

absl::StatusOr<StripeLayout> StripeLayout::Create(v1::Manifest manifest) {
  absl::Status status = ValidateManifest(manifest);
  if (!status.ok()) return status;
  return StripeLayout(std::move(manifest));
}

StripeLayout::StripeLayout(v1::Manifest manifest)
    : manifest_(std::move(manifest)), manifest_crc32c_(sluice::ManifestCrc32c(manifest_)) {}

uint32_t StripeLayout::SruLength(uint64_t sru) const {
  return static_cast<uint32_t>(std::min<uint64_t>(SruBytes(), FileBytes() - SruOffset(sru)));
}

uint64_t StripeLayout::StripeSrus(uint32_t worker, uint32_t replica) const {
  const uint64_t first = FirstSru(worker, replica);
  return first < SruCount() ? (SruCount() - first - 1) / Workers() + 1 : 0;
}

uint64_t StripeLayout::SruInStripe(uint32_t worker, uint32_t replica, uint64_t index) const {
  return FirstSru(worker, replica) + index * Workers();
}

uint64_t StripeLayout::StripeBytes(uint32_t worker, uint32_t replica) const {
  const uint64_t srus = StripeSrus(worker, replica);
  if (srus == 0) return 0;
  return (srus - 1) * SruBytes() + SruLength(SruInStripe(worker, replica, srus - 1));
}

StripeLayout::SruRange StripeLayout::BlockSrus(uint64_t block) const {
  const uint64_t first = block * Workers();
  return {first, std::min<uint64_t>(Workers(), SruCount() - first)};
}

uint64_t StripeLayout::BlockLength(uint64_t block) const {
  return std::min(BlockBytes(), FileBytes() - BlockOffset(block));
}

uint32_t StripeLayout::FirstSru(uint32_t worker, uint32_t replica) const {
  return (worker + Workers() - replica) % Workers();
}

}  // namespace sluice
