// Parses arbitrary bytes as a manifest, as a client does for a received one, and as sluice-stripe and the verifier do
// for a stored one. An accepted manifest must be the same after it is written and read. All arithmetic on it must stay
// within the file.
//
// If the first byte is even, the rest is the stored form. If it is odd, the rest is the message, and the fuzzer adds
// the header.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/storage/stripe/crc32c.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/stripe_layout.h"
#include "lib/storage/stripe/stripe_source.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice {
namespace {

constexpr char kFile[] = "data";

// Returns the stored form of a message, which may be invalid.
std::string WithHeader(absl::string_view message) {
  std::string stored = EncodeManifest(v1::Manifest());
  const uint32_t crc32c = Crc32c({message.data(), message.size()});
  const uint64_t bytes = message.size();
  for (size_t i = 0; i < 4; ++i) stored[12 + i] = static_cast<char>(crc32c >> (8 * i));
  for (size_t i = 0; i < 8; ++i) stored[16 + i] = static_cast<char>(bytes >> (8 * i));
  return stored.append(message.data(), message.size());
}

// A disk with one worker, which has the manifest.
class OneManifest final : public StripeSource {
 public:
  explicit OneManifest(const std::string& stored) : stored_(stored) {}

  absl::StatusOr<std::vector<uint32_t>> Workers() const override { return std::vector<uint32_t>{0}; }
  absl::StatusOr<std::vector<std::string>> Files(uint32_t) const override { return std::vector<std::string>{kFile}; }
  std::string FolderName(uint32_t) const override { return "worker-0000"; }
  absl::Status Read(uint32_t, std::string_view, uint32_t, uint64_t, uint32_t, std::string*) const override {
    return absl::NotFoundError("no stripe here");
  }
  absl::StatusOr<uint64_t> StripeBytes(uint32_t, std::string_view, uint32_t) const override {
    return absl::NotFoundError("no stripe here");
  }
  absl::StatusOr<uint64_t> ReadManifest(uint32_t, std::string_view, uint64_t offset, uint32_t length,
                                        std::string* out) const override {
    FUZZ_CHECK(offset <= stored_.size());
    *out = stored_.substr(offset, length);
    return stored_.size();
  }

 private:
  const std::string& stored_;
};

void CheckSru(const StripeLayout& layout, uint64_t sru) {
  FUZZ_CHECK(layout.SruLength(sru) >= 1 && layout.SruLength(sru) <= layout.SruBytes());
  FUZZ_CHECK(layout.SruOffset(sru) < layout.FileBytes());
  FUZZ_CHECK(layout.SruLength(sru) <= layout.FileBytes() - layout.SruOffset(sru));
  for (const uint32_t replica : {0u, layout.Replicas() / 2, layout.Replicas() - 1}) {
    const uint32_t worker = layout.Worker(sru, replica);
    FUZZ_CHECK(worker < layout.Workers());
    const uint64_t index = layout.OffsetInStripe(sru) / layout.SruBytes();
    FUZZ_CHECK(index < layout.StripeSrus(worker, replica));
    FUZZ_CHECK(layout.SruInStripe(worker, replica, index) == sru);
    FUZZ_CHECK(layout.OffsetInStripe(sru) + layout.SruLength(sru) <= layout.StripeBytes(worker, replica));
  }
}

void CheckLayout(const StripeLayout& layout) {
  const uint64_t srus = layout.SruCount();
  for (uint64_t sru = 0; sru < std::min<uint64_t>(srus, 50); ++sru) CheckSru(layout, sru);
  for (uint64_t sru = srus - std::min<uint64_t>(srus, 50); sru < srus; ++sru) CheckSru(layout, sru);

  uint64_t in_blocks = 0;
  for (uint64_t block = 0; block < layout.BlockCount(); ++block) {
    const StripeLayout::SruRange range = layout.BlockSrus(block);
    FUZZ_CHECK(range.count >= 1 && range.count <= layout.Workers());
    FUZZ_CHECK(range.first + range.count <= srus);
    FUZZ_CHECK(layout.BlockOffset(block) == in_blocks);
    in_blocks += layout.BlockLength(block);
  }
  FUZZ_CHECK(in_blocks == layout.FileBytes());
  uint64_t in_stripes = 0;
  for (uint32_t worker = 0; worker < layout.Workers(); ++worker) in_stripes += layout.StripeBytes(worker, 0);
  FUZZ_CHECK(in_stripes == layout.FileBytes());
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  FuzzInput input(data, size);
  const bool is_message = input.Byte() % 2 == 1;
  const absl::string_view bytes = input.Take(size);
  const std::string stored = is_message ? WithHeader(bytes) : std::string(bytes);

  const absl::StatusOr<std::string> loaded = ReadWholeManifest(OneManifest(stored), 0, kFile);
  FUZZ_CHECK(loaded.ok() && *loaded == stored);
  absl::StatusOr<v1::Manifest> manifest = DecodeManifest(stored);
  if (!manifest.ok()) {
    FUZZ_CHECK(!manifest.status().message().empty());
    return 0;
  }
  const absl::StatusOr<v1::Manifest> again = DecodeManifest(EncodeManifest(*manifest));
  FUZZ_CHECK(again.ok() && again->SerializeAsString() == manifest->SerializeAsString());
  FUZZ_CHECK(ManifestCrc32c(*again) == ManifestCrc32c(*manifest));
  const absl::StatusOr<StripeLayout> layout = StripeLayout::Create(*std::move(manifest));
  FUZZ_CHECK(layout.ok());
  CheckLayout(*layout);
  return 0;
}
