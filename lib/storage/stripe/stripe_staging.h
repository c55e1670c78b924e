#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/storage/stripe/file_descriptor.h"
#include "lib/storage/stripe/publication.h"
#include "lib/storage/stripe/stripe_folder.h"

namespace sluice {

// The folders of a file that is being striped: DIR/worker-NNNN/.new-<file>. Readers cannot see them until Publish
// renames them. If it is destroyed before Keep, it removes everything that it created and undoes Publish. A run has one
// for each file. The run holds a lock on DIR, so only one run at a time works there. The next run for the same file
// removes the leftovers of a killed run. Not thread-safe.
class StripeStaging {
 public:
  // Creates missing worker folders of DIR. Returns AlreadyExists if the file is striped here and `replace` is false.
  static absl::StatusOr<std::unique_ptr<StripeStaging>> Create(std::shared_ptr<StripeFolder> root,
                                                               std::string_view file, uint32_t workers, bool replace);
  StripeStaging(const StripeStaging&) = delete;
  StripeStaging& operator=(const StripeStaging&) = delete;
  ~StripeStaging();

  // Calls open(2) for a file in the staged folder of one worker.
  absl::StatusOr<FileDescriptor> Open(uint32_t worker, const std::string& name, int flags) const;
  std::string Describe(uint32_t worker, const std::string& name) const;  // returns its path, for errors

  // Makes everything durable, and adds the steps of Publish to `steps`, with folders relative to `top`.
  absl::Status Prepare(const std::string& top, uint32_t manifest_crc32c, std::vector<PublicationStep>& steps) const;
  // Makes everything visible. It is atomic at each worker, and publishes one worker after the other. It also removes
  // the file from workers that it is no longer striped over. If a step fails, the steps before it are undone. `on_step`
  // is called after each step; may be null.
  absl::Status Publish(const std::function<void()>& on_step);
  // Keeps the published files, and removes the files that they replaced.
  void Keep() { kept_ = true; }

 private:
  // A completed rename, which Undo can reverse.
  struct Change {
    enum class Kind { kAdded, kExchanged, kRemoved } kind;
    uint32_t worker;
  };

  StripeStaging(std::shared_ptr<StripeFolder> root, std::string_view file, uint32_t workers);

  absl::Status InspectWorkers(bool replace);
  absl::Status MakeWorker(uint32_t worker);
  absl::Status PublishWorker(uint32_t worker);
  absl::Status RemoveWorker(uint32_t worker);
  bool Undo(Change change) const;
  absl::Status Sync() const;

  bool Exists(const std::string& path) const;
  std::string StagedPath(uint32_t worker) const;  // relative to DIR
  std::string FinalPath(uint32_t worker) const;
  std::string Absolute(const std::string& path) const;

  const std::shared_ptr<StripeFolder> root_;
  const std::string file_;
  const uint32_t workers_;
  bool kept_ = false;
  std::vector<uint32_t> outdated_;  // workers beyond workers_ that have the file
  std::vector<uint32_t> folders_made_;
  std::vector<uint32_t> staged_;
  std::vector<Change> changes_;
};

}  // namespace sluice
