#include "lib/storage/stripe/stripe_folder.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "lib/storage/stripe/stripe_name.h"

namespace sluice {
namespace {

constexpr mode_t kFolderMode = 0755;

}  // namespace

absl::StatusOr<std::shared_ptr<StripeFolder>> StripeFolder::Open(const std::string& path) {
  const bool made = mkdir(path.c_str(), kFolderMode) == 0;
  if (!made && errno != EEXIST) return ErrnoStatus(errno, absl::StrCat("cannot make folder ", path));
  absl::StatusOr<FileDescriptor> fd = OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
  if (!fd.ok()) return fd.status();
  std::shared_ptr<StripeFolder> folder(new StripeFolder(path, made, *std::move(fd)));
  if (flock(folder->fd(), LOCK_EX | LOCK_NB) == 0) return folder;
  if (errno == EWOULDBLOCK)
    return absl::UnavailableError(absl::StrCat("another run is striping into ", path, "; try again after it"));
  return ErrnoStatus(errno, absl::StrCat("cannot lock ", path));
}

StripeFolder::StripeFolder(std::string path, bool made, FileDescriptor fd)
    : path_(std::move(path)), made_(made), fd_(std::move(fd)) {}

StripeFolder::~StripeFolder() {
  mid_levels_.clear();
  if (made_) rmdir(path_.c_str());  // fails if the folder is not empty
}

absl::StatusOr<std::shared_ptr<StripeFolder>> StripeFolder::MidLevel(uint32_t aggregator) {
  const auto found = mid_levels_.find(aggregator);
  if (found != mid_levels_.end()) return found->second;
  auto opened = Open(absl::StrCat(path_, "/", MidLevelFolderName(aggregator)));
  if (opened.ok()) mid_levels_[aggregator] = *opened;
  return opened;
}

}  // namespace sluice
