#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/storage/stripe/file_descriptor.h"

namespace sluice {

// A folder that a run stripes into: DIR, or that of a mid-level aggregator below it. Locked for as long as it is there.
// One a run for each folder, shared by the files that the run writes there. Destroyed, it removes what it made and
// nobody has filled. Not thread-safe.
class StripeFolder {
 public:
  // Makes the folder where it is missing, but not the one above it. Unavailable: another run works there.
  static absl::StatusOr<std::shared_ptr<StripeFolder>> Open(const std::string& path);
  StripeFolder(const StripeFolder&) = delete;
  StripeFolder& operator=(const StripeFolder&) = delete;
  ~StripeFolder();

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }

  // The folder of one mid-level aggregator, below this one. The errors of Open.
  absl::StatusOr<std::shared_ptr<StripeFolder>> MidLevel(uint32_t aggregator);

 private:
  StripeFolder(std::string path, bool made, FileDescriptor fd);

  const std::string path_;
  const bool made_;
  const FileDescriptor fd_;
  std::map<uint32_t, std::shared_ptr<StripeFolder>> mid_levels_;
};

}  // namespace sluice
