#include "corpus.h"

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::examples::search {
namespace {

namespace fs = std::filesystem;

bool IsDocument(const fs::path& path) {
  const fs::path extension = path.extension();
  if (extension == ".html" || extension == ".htm") return true;
  return extension == ".txt" && !fs::exists(fs::path(path).replace_extension(".html"));
}

bool IsSkipped(const fs::path& folder) {
  const std::string name = folder.filename();
  return name.starts_with("_") || name.starts_with(".");
}

absl::Status AddFiles(const fs::path& folder, std::map<std::string, uint64_t>& files) {
  std::error_code error;
  auto entry = fs::recursive_directory_iterator(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->is_symlink(error)) continue;
    if (entry->is_directory(error) && IsSkipped(entry->path())) entry.disable_recursion_pending();
    if (entry->is_regular_file(error) && IsDocument(entry->path())) files[entry->path()] = entry->file_size(error);
  }
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("corpus: cannot read ", folder.string(), ": ", error.message()));
}

}  // namespace

absl::StatusOr<std::vector<CorpusFile>> ListCorpus(const std::vector<std::string>& folders) {
  std::map<std::string, uint64_t> files;
  for (const std::string& folder : folders) {
    std::error_code error;
    const fs::path root = fs::canonical(folder, error);
    if (error || !fs::is_directory(root, error))
      return absl::NotFoundError(absl::StrCat("corpus: there is no folder ", folder));
    if (absl::Status status = AddFiles(root, files); !status.ok()) return status;
  }
  if (files.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("corpus: no .html, .htm or .txt file below ", absl::StrJoin(folders, ", ")));
  }
  std::vector<CorpusFile> sorted;
  sorted.reserve(files.size());
  for (const auto& [path, bytes] : files) sorted.push_back({path, bytes});
  return sorted;
}

}  // namespace sluice::examples::search
