#include "lib/storage/stripe/stripe_verifier.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/storage/stripe/crc32c.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/stripe_layout.h"
#include "lib/storage/stripe/stripe_name.h"
#include "lib/storage/stripe/stripe_store.h"
#include "lib/storage/stripe/tree_store.h"

namespace sluice {
namespace {

// Verifies one file over all of its workers with a folder here.
class FileVerifier {
 public:
  FileVerifier(const StripeSource& store, std::string file, const std::set<uint32_t>& present,
               const std::string& folder, const VerifyOptions& options, VerifyReport& report)
      : store_(store), file_(std::move(file)), present_(present), folder_(folder), options_(options), report_(report) {}

  void Verify() {
    ++report_.files;
    FindLayout();
    if (!layout_) return;  // every manifest was reported already
    for (uint32_t worker = 0; worker < layout_->Workers(); ++worker) VerifyWorker(worker);
  }

 private:
  // Takes the layout from the first valid manifest; the others must equal it.
  void FindLayout() {
    std::string reference;
    for (const uint32_t worker : present_) {
      const absl::StatusOr<std::string> stored = ReadWholeManifest(store_, worker, file_);
      if (absl::IsNotFound(stored.status())) continue;  // perhaps not a worker of this file; VerifyWorker checks this
      absl::StatusOr<v1::Manifest> manifest = stored.ok() ? DecodeManifest(*stored) : stored.status();
      if (!manifest.ok()) {
        Problem(worker, manifest.status().message());
      } else if (!layout_) {
        layout_ = StripeLayout::Create(*std::move(manifest)).value();  // DecodeManifest has validated it
        reference = *stored;
        reference_worker_ = worker;
      } else if (*stored != reference) {
        Problem(worker, absl::StrCat("the manifest differs from that of ", store_.FolderName(reference_worker_)));
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
      if (layout_->OffsetInStripe(sru) + layout_->SruLength(sru) > *bytes) break;  // reported above
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
    if (options_.on_problem)
      options_.on_problem(absl::StrCat(folder_, store_.FolderName(worker), "/", file_, ": ", what));
  }

  const StripeSource& store_;
  const std::string file_;
  const std::set<uint32_t>& present_;
  const std::string& folder_;  // below the root
  const VerifyOptions& options_;
  VerifyReport& report_;
  std::optional<StripeLayout> layout_;
  uint32_t reference_worker_ = 0;
};

absl::Status VerifyLevel(const StripeSource& store, const std::string& folder, const VerifyOptions& options,
                         VerifyReport& report) {
  const absl::StatusOr<std::vector<uint32_t>> workers = store.Workers();
  if (!workers.ok()) return workers.status();
  const std::set<uint32_t> present(workers->begin(), workers->end());
  std::set<std::string> files;
  for (const uint32_t worker : present) {
    const absl::StatusOr<std::vector<std::string>> names = store.Files(worker);
    if (!names.ok()) return names.status();
    files.insert(names->begin(), names->end());
  }
  for (const std::string& file : files) FileVerifier(store, file, present, folder, options, report).Verify();
  return absl::OkStatus();
}

// Verifies the levels below first: a problem there also shows above. `folder` is relative to the root, and ends with a
// '/'.
absl::Status VerifyTree(const std::string& root, const std::string& folder, const VerifyOptions& options,
                        VerifyReport& report) {
  const std::string path = folder.empty() ? root : absl::StrCat(root, "/", folder);
  const absl::StatusOr<StripeStore> own = StripeStore::Open(path);
  if (!own.ok()) return own.status();
  absl::Status status = VerifyLevel(*own, folder, options, report);
  if (!TreeStore::IsTree(path)) return status;
  const absl::StatusOr<std::unique_ptr<StripeSource>> tree = TreeStore::Open(path);
  if (!tree.ok()) return tree.status();
  const absl::StatusOr<std::vector<uint32_t>> aggregators = (*tree)->Workers();
  if (!aggregators.ok()) return aggregators.status();
  for (const uint32_t aggregator : *aggregators) {
    status.Update(VerifyTree(root, absl::StrCat(folder, MidLevelFolderName(aggregator), "/"), options, report));
  }
  status.Update(VerifyLevel(**tree, folder, options, report));
  return status;
}

}  // namespace

absl::StatusOr<std::string> ReadWholeManifest(const StripeSource& source, uint32_t worker, const std::string& file) {
  std::string stored;
  std::string part;
  uint64_t total = 0;
  do {
    const absl::StatusOr<uint64_t> bytes = source.ReadManifest(worker, file, stored.size(), kMaxReadBytes, &part);
    if (!bytes.ok()) return bytes.status();
    total = *bytes;
    if (total > kMaxStoredManifestBytes)
      return absl::DataLossError(
          absl::StrCat("manifest has ", total, " bytes; the largest has ", kMaxStoredManifestBytes));
    stored += part;
  } while (stored.size() < total && !part.empty());
  return stored;
}

absl::StatusOr<VerifyReport> VerifyStripes(const std::string& root, const VerifyOptions& options) {
  VerifyReport report;
  absl::Status status = VerifyTree(root, "", options, report);
  if (!status.ok()) return status;
  return report;
}

}  // namespace sluice
