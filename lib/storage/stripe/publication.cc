#include "lib/storage/stripe/publication.h"

#include <cerrno>
#include <filesystem>
#include <set>
#include <utility>

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/storage/stripe/crc32c.h"
#include "lib/storage/stripe/file_descriptor.h"
#include "lib/storage/stripe/stripe_name.h"

namespace sluice {
namespace {

constexpr char kPrefix[] = ".publish-";
constexpr char kGone[] = "-";
constexpr mode_t kJournalMode = 0644;

std::string JournalName(const std::string& file) {
  return absl::StrCat(kPrefix, file);
}

// Its name until it is complete.
std::string NewJournalName(const std::string& file) {
  return absl::StrCat(".new", JournalName(file));
}

absl::StatusOr<std::string> ReadWhole(int folder, const std::string& path) {
  const absl::StatusOr<FileDescriptor> file = OpenAt(folder, path, O_RDONLY | O_NOFOLLOW);
  if (!file.ok()) return file.status();
  std::string whole;
  char bytes[64 << 10];
  while (true) {
    const ssize_t got = read(file->get(), bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, path);
    if (got == 0) return whole;
    whole.append(bytes, static_cast<size_t>(got));
  }
}

// Whether the folder holds the new version of the file.
bool IsNew(const StripeFolder& root, const std::string& path, uint32_t manifest_crc32c) {
  const auto manifest = ReadWhole(root.fd(), absl::StrCat(path, "/", std::string(kManifestFileName)));
  return manifest.ok() && Crc32c(*manifest) == manifest_crc32c;
}

bool Exists(const StripeFolder& root, const std::string& path) {
  return faccessat(root.fd(), path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

absl::Status SyncFolder(const StripeFolder& root, const std::string& path) {
  const absl::StatusOr<FileDescriptor> folder = OpenAt(root.fd(), path, O_RDONLY | O_DIRECTORY);
  if (!folder.ok()) return folder.status();
  return fsync(folder->get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, absl::StrCat("cannot write back ", path));
}

absl::StatusOr<std::vector<PublicationStep>> ReadSteps(const StripeFolder& root, const std::string& journal) {
  const absl::StatusOr<std::string> text = ReadWhole(root.fd(), journal);
  if (!text.ok()) return text.status();
  std::vector<PublicationStep> steps;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    PublicationStep step;
    uint32_t crc32c = 0;
    bool valid = words.size() == 3 && ValidateFileName(words[1]).ok();
    if (valid && words[2] != kGone) {
      valid = absl::SimpleAtoi(words[2], &crc32c);
      step.manifest_crc32c = crc32c;
    }
    if (!valid) {
      return absl::DataLossError(
          absl::StrCat(root.path(), "/", journal, " is no journal of a publication: \"", line, "\""));
    }
    step.folder = words[0];
    step.name = words[1];
    steps.push_back(std::move(step));
  }
  return steps;
}

absl::Status Complete(const StripeFolder& root, const PublicationStep& step) {
  const std::string final_path = absl::StrCat(step.folder, "/", step.name);
  const std::string staged_path = absl::StrCat(step.folder, "/.new-", step.name);
  unsigned flags = 0;
  std::string from = staged_path;
  std::string to = final_path;
  if (!step.manifest_crc32c.has_value()) {
    if (!Exists(root, final_path)) return absl::OkStatus();
    std::swap(from, to);
  } else if (IsNew(root, final_path, *step.manifest_crc32c)) {
    return absl::OkStatus();
  } else if (!IsNew(root, staged_path, *step.manifest_crc32c)) {
    return absl::DataLossError(absl::StrCat("the publication of ", root.path(), "/", final_path,
                                            " cannot be completed: neither it nor ", staged_path,
                                            " has the new manifest; remove both, and stripe the file again"));
  } else if (Exists(root, final_path)) {
    flags = RENAME_EXCHANGE;
  }
  if (renameat2(root.fd(), from.c_str(), root.fd(), to.c_str(), flags) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot rename ", root.path(), "/", from));
  }
  return absl::OkStatus();
}

absl::Status Recover(const StripeFolder& root, const std::string& file) {
  const absl::StatusOr<std::vector<PublicationStep>> steps = ReadSteps(root, JournalName(file));
  if (!steps.ok()) return steps.status();
  std::set<std::string> folders;
  for (const PublicationStep& step : *steps) {
    if (absl::Status completed = Complete(root, step); !completed.ok()) return completed;
    folders.insert(step.folder);
  }
  for (const std::string& folder : folders) {
    if (absl::Status synced = SyncFolder(root, folder); !synced.ok()) return synced;
  }
  absl::Status ended = EndPublication(root, file);
  if (!ended.ok()) return ended;
  for (const PublicationStep& step : *steps) {
    std::error_code ignored;  // the next run for this file tries again
    std::filesystem::remove_all(absl::StrCat(root.path(), "/", step.folder, "/.new-", step.name), ignored);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BeginPublication(const StripeFolder& root, const std::string& file,
                              absl::Span<const PublicationStep> steps) {
  std::string text;
  for (const PublicationStep& step : steps) {
    const std::string version = step.manifest_crc32c.has_value() ? absl::StrCat(*step.manifest_crc32c) : kGone;
    absl::StrAppend(&text, step.folder, " ", step.name, " ", version, "\n");
  }
  const std::string name = JournalName(file);
  const std::string unfinished = NewJournalName(file);
  const absl::StatusOr<FileDescriptor> journal =
      OpenAt(root.fd(), unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, kJournalMode);
  if (!journal.ok()) return journal.status();
  if (absl::Status written = WriteAll(journal->get(), text, absl::StrCat(root.path(), "/", unfinished));
      !written.ok()) {
    return written;
  }
  if (fsync(journal->get()) != 0 || renameat(root.fd(), unfinished.c_str(), root.fd(), name.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot write ", root.path(), "/", name));
  }
  return SyncFolder(root, ".");
}

absl::Status EndPublication(const StripeFolder& root, const std::string& file) {
  const std::string name = JournalName(file);
  unlinkat(root.fd(), NewJournalName(file).c_str(), 0);
  if (unlinkat(root.fd(), name.c_str(), 0) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("cannot remove ", root.path(), "/", name));
  }
  return SyncFolder(root, ".");
}

absl::Status RecoverPublications(const StripeFolder& root) {
  std::error_code error;
  std::filesystem::directory_iterator entries(root.path(), error);
  if (error) return ErrnoStatus(error.value(), root.path());
  std::vector<std::string> files;
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename();
    absl::string_view file = name;
    if (absl::ConsumePrefix(&file, kPrefix)) files.emplace_back(file);
  }
  for (const std::string& file : files) {
    if (absl::Status recovered = Recover(root, file); !recovered.ok()) return recovered;
  }
  return absl::OkStatus();
}

}  // namespace sluice
