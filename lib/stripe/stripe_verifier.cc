#include "lib/stripe/stripe_verifier.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/stripe/crc32c.h"
#include "lib/stripe/manifest.h"
#include "lib/stripe/stripe_layout.h"
#include "lib/stripe/stripe_name.h"
#include "lib/stripe/stripe_store.h"

namespace sluice {
namespace {

absl::StatusOr<std::string> ReadWholeManifest(const StripeStore& store, uint32_t worker, const std::string& file) {
  std::string stored;
  std::string part;
  uint64_t total = 0;
  do {
    const absl::StatusOr<uint64_t> bytes = store.ReadManifest(worker, file, stored.size(), kMaxReadBytes, &part);
    if (!bytes.ok()) return bytes.status();
    total = *bytes;
    if (total > kMaxStoredManifestBytes)
      return absl::DataLossError(
          absl::StrCat("manifest has ", total, " bytes; the largest has ", kMaxStoredManifestBytes));
    stored += part;
  } while (stored.size() < total && !part.empty());
  return stored;
}

// Verifies one file over all of its workers that are here.
class FileVerifier {
 public:
  FileVerifier(const StripeStore& store, std::string file, const std::set<uint32_t>& present,
               const VerifyOptions& options, VerifyReport& report)
      : store_(store), file_(std::move(file)), present_(present), options_(options), report_(report) {}

  void Verify() {
    ++report_.files;
    FindLayout();
    if (!layout_) return;  // every manifest is a problem already
    for (uint32_t worker = 0; worker < layout_->Workers(); ++worker) VerifyWorker(worker);
  }

 private:
  // The first valid manifest says how the file is striped; the others have to say the same.
  void FindLayout() {
    std::string reference;
    for (const uint32_t worker : present_) {
      const absl::StatusOr<std::string> stored = ReadWholeManifest(store_, worker, file_);
      if (absl::IsNotFound(stored.status())) continue;  // perhaps not a worker of this file; VerifyWorker knows
      absl::StatusOr<v1::Manifest> manifest = stored.ok() ? DecodeManifest(*stored) : stored.status();
      if (!manifest.ok()) {
        Problem(worker, manifest.status().message());
      } else if (!layout_) {
        layout_ = StripeLayout::Create(*std::move(manifest)).value();  // DecodeManifest has validated it
        reference = *stored;
        reference_worker_ = worker;
      } else if (*stored != reference) {
        Problem(worker, absl::StrCat("the manifest differs from that of ", WorkerFolderName(reference_worker_)));
      }
    }
    if (!layout_) Problem(*present_.begin(), "no worker here has a valid manifest");
  }

  void VerifyWorker(uint32_t worker) {
    if (!present_.contains(worker)) {
      if (!options_.partial) Problem(worker, "the folder of this worker is missing");
      return;
    }
    std::string ignored;
    absl::Status manifest = store_.ReadManifest(worker, file_, 0, 1, &ignored).status();
    if (absl::IsNotFound(manifest)) Problem(worker, manifest.message());
    for (uint32_t replica = 0; replica < layout_->Replicas(); ++replica) VerifyStripe(worker, replica);
  }

  void VerifyStripe(uint32_t worker, uint32_t replica) {
    const absl::StatusOr<uint64_t> bytes = store_.StripeBytes(worker, file_, replica);
    if (!bytes.ok()) return Problem(worker, bytes.status().message());
    ++report_.stripes;
    const uint64_t expected = layout_->StripeBytes(worker, replica);
    if (*bytes != expected)
      Problem(worker, absl::StrCat(StripeFileName(replica), " has ", *bytes, " bytes, expected ", expected));
    for (uint64_t i = 0; i < layout_->StripeSrus(worker, replica); ++i) {
      const uint64_t sru = layout_->SruInStripe(worker, replica, i);
      if (layout_->OffsetInStripe(sru) + layout_->SruLength(sru) > *bytes) break;  // said above
      VerifySru(worker, replica, sru);
    }
  }

  void VerifySru(uint32_t worker, uint32_t replica, uint64_t sru) {
    uint32_t found = 0;
    std::string part;
    const uint32_t length = layout_->SruLength(sru);
    for (uint32_t done = 0; done < length; done += static_cast<uint32_t>(part.size())) {
      absl::Status read = store_.Read(worker, file_, replica, layout_->OffsetInStripe(sru) + done,
                                      std::min(length - done, kMaxReadBytes), &part);
      if (!read.ok()) return Problem(worker, absl::StrCat("SRU ", sru, ": ", read.message()));
      found = Crc32c(part, found);
    }
    ++report_.srus;
    report_.bytes += length;
    if (found != layout_->SruCrc32c(sru))
      Problem(worker, absl::StrFormat("SRU %d in %s: CRC32C expected %08x, found %08x", sru, StripeFileName(replica),
                                      layout_->SruCrc32c(sru), found));
  }

  void Problem(uint32_t worker, absl::string_view what) {
    ++report_.problems;
    if (options_.on_problem) options_.on_problem(absl::StrCat(WorkerFolderName(worker), "/", file_, ": ", what));
  }

  const StripeStore& store_;
  const std::string file_;
  const std::set<uint32_t>& present_;
  const VerifyOptions& options_;
  VerifyReport& report_;
  std::optional<StripeLayout> layout_;
  uint32_t reference_worker_ = 0;
};

}  // namespace

absl::StatusOr<VerifyReport> VerifyStripes(const std::string& root, const VerifyOptions& options) {
  const absl::StatusOr<StripeStore> store = StripeStore::Open(root);
  if (!store.ok()) return store.status();
  const absl::StatusOr<std::vector<uint32_t>> workers = store->Workers();
  if (!workers.ok()) return workers.status();
  const std::set<uint32_t> present(workers->begin(), workers->end());
  std::set<std::string> files;
  for (const uint32_t worker : present) {
    const absl::StatusOr<std::vector<std::string>> names = store->Files(worker);
    if (!names.ok()) return names.status();
    files.insert(names->begin(), names->end());
  }
  VerifyReport report;
  for (const std::string& file : files) FileVerifier(*store, file, present, options, report).Verify();
  return report;
}

}  // namespace sluice
