#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/storage/stripe/file_descriptor.h"

namespace sluice {

// A folder that a run stripes into: DIR, or the folder of a mid-level aggregator below it. It holds a lock on the
// folder. A run has one for each folder, shared by the files that the run writes there. The destructor removes the
// folders that it created if they are still empty. Not thread-safe.
class StripeFolder {
 public:
  // Creates the folder if it is missing, but not its parent. Returns Unavailable if another run works there.
  static absl::StatusOr<std::shared_ptr<StripeFolder>> Open(const std::string& path);
  StripeFolder(const StripeFolder&) = delete;
  StripeFolder& operator=(const StripeFolder&) = delete;
  ~StripeFolder();

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }

  // Opens the folder of one mid-level aggregator, below this one. Returns the errors of Open.
  absl::StatusOr<std::shared_ptr<StripeFolder>> MidLevel(uint32_t aggregator);

 private:
  StripeFolder(std::string path, bool made, FileDescriptor fd);

  const std::string path_;
  const bool made_;
  const FileDescriptor fd_;
  std::map<uint32_t, std::shared_ptr<StripeFolder>> mid_levels_;
};

}  // namespace sluice
