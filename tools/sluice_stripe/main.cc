#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/cli/program.h"
#include "lib/cli/progress_bar.h"
#include "lib/cli/units.h"
#include "lib/storage/stripe/file_descriptor.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/stripe_name.h"
#include "lib/storage/stripe/stripe_verifier.h"
#include "lib/storage/stripe/stripe_writer.h"
#include "tools/interrupt.h"

namespace sluice {
namespace {

// The given flags and the options parsed from them. Exactly one of the modes is selected: stripe, show,
// verify, recover.
struct Flags {
  std::string input;  // a path, or "-"
  std::string out;
  std::string name;
  std::string sru = "10kb";
  std::string workers = "0";
  std::string replicas = "1";
  bool force = false;
  std::string show;
  std::string verify;
  bool partial = false;
  std::string recover;
  StripeSpec spec;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("file", flags.input, "File to stripe, or - for stdin, which needs a --name");
  app.add_option("--out", flags.out, "Folder for the worker-NNNN folders")->type_name("DIR");
  app.add_option(
         "--workers", flags.workers,
         "Number of workers to stripe over; in an aggregation tree that of every level, the top first, as in 4x32")
      ->type_name("N[xN...]");
  app.add_option("--sru", flags.sru, "Bytes of one SRU of the lowest level. Default 10kb")->type_name("SIZE");
  app.add_option(
         "--replicas", flags.replicas,
         "Number of copies of every SRU, each at another worker. In a tree a single number is that of the top level, "
         "and the levels below have 1. Default 1")
      ->type_name("R[xR...]");
  app.add_option("--name", flags.name, "Name that readers ask for. Default: that of the file")->type_name("NAME");
  app.add_flag("--force", flags.force, "Replace an existing file of this name");
  app.add_option("--show", flags.show, "Print a manifest as JSON")->type_name("MANIFEST");
  app.add_option("--verify", flags.verify, "Read all stripes in a folder and check every checksum")->type_name("DIR");
  app.add_option("--recover", flags.recover,
                 "Complete files in a folder whose run was killed while it replaced them; so does each later run")
      ->type_name("DIR");
  app.add_flag("--partial", flags.partial, "With --verify: allow that folders of some workers are not on this machine");
}

// Checks a number. It is an int64, so the error quotes -1 and 2^40 as given.
absl::Status CheckRange(const char* flag, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " is ", value, "; it must be 1 to ", most));
}

// Parses "4x32" as {4, 32}. The caller checks the numbers.
absl::StatusOr<std::vector<int64_t>> ParseLevels(const char* flag, const std::string& text) {
  std::vector<int64_t> levels;
  for (const absl::string_view word : absl::StrSplit(text, 'x')) {
    if (!absl::SimpleAtoi(word, &levels.emplace_back())) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " is ", text, "; give a number, or one for each level: 4x32"));
    }
  }
  return levels;
}

absl::Status ConfigureLevels(Flags& flags) {
  const auto workers = ParseLevels("--workers", flags.workers);
  auto replicas = ParseLevels("--replicas", flags.replicas);
  absl::Status status = workers.status();
  status.Update(replicas.status());
  if (!status.ok()) return status;
  if (replicas->size() == 1) replicas->resize(workers->size(), 1);
  if (replicas->size() != workers->size()) {
    return absl::InvalidArgumentError(absl::StrCat("--replicas is ", flags.replicas, "; it must be one number or ",
                                                   workers->size(), ", as --workers is ", flags.workers));
  }
  std::vector<StripeLevel> levels;
  for (size_t i = 0; i < workers->size(); ++i) {
    status.Update(CheckRange("--workers", (*workers)[i], kMaxStripeWorkers));
    if (status.ok()) status = CheckRange("--replicas", (*replicas)[i], (*workers)[i]);
    levels.push_back({static_cast<uint32_t>((*workers)[i]), static_cast<uint32_t>((*replicas)[i])});
  }
  flags.spec.workers = levels.back().workers;
  flags.spec.replicas = levels.back().replicas;
  levels.pop_back();
  flags.spec.levels_above = std::move(levels);
  return status;
}

absl::Status ConfigureStriping(Flags& flags) {
  StripeSpec& spec = flags.spec;
  if (flags.out.empty()) return absl::InvalidArgumentError("--out is missing: the folder for the worker-NNNN folders");
  if (flags.input == "-" && flags.name.empty())
    return absl::InvalidArgumentError("--name is missing: stdin has no name");
  spec.root = flags.out;
  spec.file = flags.name.empty() ? std::filesystem::path(flags.input).filename().string() : flags.name;
  spec.replace = flags.force;
  int64_t sru_bytes = 0;
  absl::Status status = ParseField("--sru", flags.sru, ParseByteSize, sru_bytes);
  if (status.ok()) status = CheckRange("--sru", sru_bytes, kMaxSruBytes);
  status.Update(ConfigureLevels(flags));
  status.Update(ValidateFileName(spec.file));
  spec.sru_bytes = static_cast<uint32_t>(sru_bytes);
  return status;
}

absl::Status Configure(Flags& flags) {
  const int modes = !flags.input.empty() + !flags.show.empty() + !flags.verify.empty() + !flags.recover.empty();
  if (modes != 1)
    return absl::InvalidArgumentError("give one of: a file to stripe, --show MANIFEST, --verify DIR, --recover DIR");
  return flags.input.empty() ? absl::OkStatus() : ConfigureStriping(flags);
}

absl::StatusOr<FileDescriptor> OpenInput(const std::string& path) {
  if (path != "-") return OpenAt(AT_FDCWD, path, O_RDONLY);
  FileDescriptor input(dup(STDIN_FILENO));  // not /dev/stdin, which cannot open a socket
  if (!input.valid()) return ErrnoStatus(errno, "cannot read stdin");
  return input;
}

uint64_t RegularFileBytes(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0;
}

absl::Status Stripe(StripeSpec spec, const std::string& path) {
  const absl::StatusOr<FileDescriptor> input = OpenInput(path);
  if (!input.ok()) return input.status();
  // Do not block the signals earlier: opening a FIFO blocks until it has a writer.
  const absl::StatusOr<FileDescriptor> interrupts = CatchInterrupts();
  if (!interrupts.ok()) return interrupts.status();
  absl::StatusOr<v1::Manifest> manifest;
  {
    ProgressBar progress(ShowProgress::kAuto);
    const uint64_t file_bytes = RegularFileBytes(input->get());
    spec.stop_fd = interrupts->get();
    spec.on_progress = [&](uint64_t bytes) { progress.Update(bytes, file_bytes); };
    manifest = StripeFile(input->get(), spec);
  }
  if (!manifest.ok()) return manifest.status();
  std::vector<uint32_t> workers;
  std::vector<uint32_t> replicas;
  for (const StripeLevel& level : spec.levels_above) {
    workers.push_back(level.workers);
    replicas.push_back(level.replicas);
  }
  workers.push_back(spec.workers);
  replicas.push_back(spec.replicas);
  std::cout << absl::StreamFormat("%s: %d bytes in %d SRUs of %d over %s workers, replicas %s, CRC32C %08x\n",
                                  spec.file, manifest->file_bytes(), manifest->sru_crc32c_size(), manifest->sru_bytes(),
                                  absl::StrJoin(workers, "x"), absl::StrJoin(replicas, "x"), manifest->file_crc32c());
  return absl::OkStatus();
}

absl::Status Show(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is a folder; give a manifest, or the folder to --verify"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string stored(kMaxStoredManifestBytes + 1, '\0');
  file.read(stored.data(), static_cast<std::streamsize>(stored.size()));
  stored.resize(static_cast<size_t>(file.gcount()));
  if (!file.is_open() || file.bad()) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  const absl::StatusOr<v1::Manifest> manifest = DecodeManifest(stored);
  if (!manifest.ok())
    return absl::Status(manifest.status().code(), absl::StrCat(path, ": ", manifest.status().message()));
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(*manifest, &json, options);
  if (!printed.ok()) return absl::InternalError(absl::StrCat(path, ": ", printed.ToString()));
  std::cout << json;
  return absl::OkStatus();
}

absl::Status Verify(const std::string& root, bool partial) {
  const absl::StatusOr<VerifyReport> report = VerifyStripes(
      root, {.partial = partial, .on_problem = [](const std::string& problem) { std::cerr << problem << std::endl; }});
  if (!report.ok()) return report.status();
  if (report->files == 0 && report->problems == 0) {
    return absl::NotFoundError(
        absl::StrCat(root, ": no striped files; give the folder that has the worker-NNNN folders"));
  }
  std::cout << absl::StreamFormat("%s: %d files, %d stripes, %d SRUs, %d bytes, %d problems\n", root, report->files,
                                  report->stripes, report->srus, report->bytes, report->problems);
  if (report->problems == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(report->problems, " problems in ", root));
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Flags flags;
  return sluice::RunProgram(argc, argv,
                            {.name = "sluice-stripe",
                             .description = "Stripes a file over the folders of workers; shows and verifies stripes.",
                             .example = "data.bin --out stripes --workers 32 --sru 10kb",
                             .main_flags = {"--out", "--workers", "--sru", "--replicas"},
                             .add_flags = [&](CLI::App& app) { sluice::AddFlags(app, flags); },
                             .config = nullptr,
                             .configure = [&] { return sluice::Configure(flags); },
                             .run =
                                 [&] {
                                   if (!flags.show.empty()) return sluice::Show(flags.show);
                                   if (!flags.recover.empty()) return sluice::RecoverStripes(flags.recover);
                                   if (!flags.verify.empty()) return sluice::Verify(flags.verify, flags.partial);
                                   return sluice::Stripe(flags.spec, flags.input);
                                 }});
}
