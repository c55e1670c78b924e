#include "lib/storage/stripe/stripe_writer.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/stripe/crc32c.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/stripe_layout.h"
#include "lib/storage/stripe/stripe_store.h"
#include "lib/storage/stripe/stripe_verifier.h"
#include "tests/unit/storage/stripe/striped_folder.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StripeWriterTest : public ::testing::Test {
 protected:
  StripeSpec Spec(uint32_t workers, uint32_t sru_bytes, uint32_t replicas = 1) {
    return {.root = folder_.path() / "out",
            .file = "data",
            .workers = workers,
            .sru_bytes = sru_bytes,
            .replicas = replicas};
  }

  // Returns the file as read from one replica of its stripes.
  std::string ReadBack(const v1::Manifest& manifest, uint32_t replica) {
    const StripeLayout layout = StripeLayout::Create(manifest).value();
    const StripeStore store = StripeStore::Open(Out()).value();
    std::string file;
    std::string part;
    for (uint64_t sru = 0; sru < layout.SruCount(); ++sru) {
      const absl::Status read = store.Read(layout.Worker(sru, replica), "data", replica, layout.OffsetInStripe(sru),
                                           layout.SruLength(sru), &part);
      EXPECT_TRUE(read.ok()) << read;
      file += part;
    }
    return file;
  }

  void ExpectRefused(const absl::StatusOr<v1::Manifest>& result, absl::StatusCode code, const std::string& message) {
    EXPECT_EQ(result.status().code(), code) << result.status();
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(message));
  }

  std::filesystem::path Out() { return folder_.path() / "out"; }

  testing::TemporaryFolder folder_;
};

// A pipe whose ends can be closed separately.
struct Pipe {
  Pipe() {
    std::array<int, 2> ends;
    EXPECT_EQ(pipe(ends.data()), 0);
    out = FileDescriptor(ends[0]);
    in = FileDescriptor(ends[1]);
  }
  FileDescriptor out;
  FileDescriptor in;
};

TEST_F(StripeWriterTest, ComesBackFromEveryReplicaAtEveryLength) {
  for (const size_t length : {1, 9, 10, 11, 29, 30, 31, 59, 60, 61, 1000}) {
    const std::string source = testing::SourceBytes(length);
    StripeSpec spec = Spec(3, 10, 2);
    spec.replace = true;
    const auto manifest = testing::StripeBytes(source, spec);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_EQ(manifest->file_bytes(), length);
    EXPECT_EQ(manifest->file_crc32c(), Crc32c(source));
    EXPECT_EQ(ReadBack(*manifest, 0), source);
    EXPECT_EQ(ReadBack(*manifest, 1), source);
  }
}

TEST_F(StripeWriterTest, MakesTheDocumentedFiles) {
  const std::string source = testing::SourceBytes(45);
  const auto manifest = testing::StripeBytes(source, Spec(2, 10, 2));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const auto sru = [&](size_t i) { return source.substr(10 * i, 10); };
  const std::string stored = EncodeManifest(*manifest);
  EXPECT_EQ(testing::Tree(Out()), (std::map<std::string, std::string>{
                                      {"worker-0000", ""},
                                      {"worker-0000/data", ""},
                                      {"worker-0000/data/manifest", stored},
                                      {"worker-0000/data/stripe-0", sru(0) + sru(2) + sru(4)},
                                      {"worker-0000/data/stripe-1", sru(1) + sru(3)},
                                      {"worker-0001", ""},
                                      {"worker-0001/data", ""},
                                      {"worker-0001/data/manifest", stored},
                                      {"worker-0001/data/stripe-0", sru(1) + sru(3)},
                                      {"worker-0001/data/stripe-1", sru(0) + sru(2) + sru(4)},
                                  }));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(manifest->sru_crc32c(i), Crc32c(sru(i)));
}

TEST_F(StripeWriterTest, StripesAnEmptyFileOverEmptyStripes) {
  const auto manifest = testing::StripeBytes("", Spec(2, 10));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->file_bytes(), 0u);
  EXPECT_EQ(manifest->file_crc32c(), 0u);
  EXPECT_EQ(testing::ReadFile(Out() / "worker-0001/data/stripe-0"), "");
}

TEST_F(StripeWriterTest, StripesSrusThatAreLargerThanItsBuffer) {
  const std::string source = testing::SourceBytes((7 << 20) + 12345);
  const auto manifest = testing::StripeBytes(source, Spec(2, 3 << 20));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_TRUE(ReadBack(*manifest, 0) == source);
}

TEST_F(StripeWriterTest, StripesOverMoreWorkersThanItKeepsOpen) {
  const std::string source = testing::SourceBytes(2000);
  const auto manifest = testing::StripeBytes(source, Spec(600, 1));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(ReadBack(*manifest, 0), source);
}

TEST_F(StripeWriterTest, StripesAPipe) {
  const std::string source = testing::SourceBytes(3 << 20);
  Pipe pipe;
  std::thread writer([&] {
    EXPECT_TRUE(WriteAll(pipe.in.get(), source, "pipe").ok());
    FileDescriptor closed = std::move(pipe.in);
  });
  const auto manifest = StripeFile(pipe.out.get(), Spec(3, 1000));
  writer.join();
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_TRUE(ReadBack(*manifest, 0) == source);
}

TEST_F(StripeWriterTest, TellsItsProgress) {
  StripeSpec spec = Spec(2, 1000);
  std::vector<uint64_t> seen;
  spec.on_progress = [&](uint64_t bytes) { seen.push_back(bytes); };
  ASSERT_TRUE(testing::StripeBytes(testing::SourceBytes(3 << 20), spec).ok());
  EXPECT_GE(seen.size(), 3u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), uint64_t{3} << 20);
}

TEST_F(StripeWriterTest, RefusesWhatCannotBeStriped) {
  ExpectRefused(testing::StripeBytes("x", Spec(0, 10)), absl::StatusCode::kInvalidArgument, "workers is 0");
  ExpectRefused(testing::StripeBytes("x", Spec(2, 0)), absl::StatusCode::kInvalidArgument, "sru_bytes is 0");
  ExpectRefused(testing::StripeBytes("x", Spec(2, 10, 3)), absl::StatusCode::kInvalidArgument, "replicas is 3");
  ExpectRefused(testing::StripeBytes("x", Spec(65536, 1, 65536)), absl::StatusCode::kInvalidArgument,
                "workers * replicas is 4294967296");
  StripeSpec spec = Spec(2, 10);
  spec.file = "../data";
  ExpectRefused(testing::StripeBytes("x", spec), absl::StatusCode::kInvalidArgument, "has a '/'");
  EXPECT_THAT(testing::Tree(folder_.path()), IsEmpty());
}

TEST_F(StripeWriterTest, RefusesAFileOfTooManySrusBeforeItStarts) {
  testing::WriteFile(folder_.path() / "input", "");
  std::filesystem::resize_file(folder_.path() / "input", kMaxSrus + 1);  // sparse
  const auto input = OpenAt(AT_FDCWD, folder_.path() / "input", O_RDONLY);
  ASSERT_TRUE(input.ok());
  ExpectRefused(StripeFile(input->get(), Spec(1, 1)), absl::StatusCode::kOutOfRange, "more than 16777216 SRUs of 1");
  EXPECT_FALSE(std::filesystem::exists(Out()));
}

TEST_F(StripeWriterTest, RefusesAStreamOfTooManySrus) {
  StripeSpec spec = Spec(2, 10);
  spec.max_srus = 3;
  for (const size_t length : {30, 31}) {
    Pipe pipe;
    ASSERT_TRUE(WriteAll(pipe.in.get(), testing::SourceBytes(length), "pipe").ok());
    pipe.in = FileDescriptor();
    const auto result = StripeFile(pipe.out.get(), spec);
    EXPECT_EQ(result.status().code(), length == 30 ? absl::StatusCode::kOk : absl::StatusCode::kOutOfRange);
    EXPECT_EQ(std::filesystem::exists(Out()), length == 30);
    std::filesystem::remove_all(Out());
  }
}

TEST_F(StripeWriterTest, KeepsAnOlderFileUnlessToldToReplaceIt) {
  ASSERT_TRUE(testing::StripeBytes("old", Spec(4, 1)).ok());
  const auto before = testing::Tree(Out());
  ExpectRefused(testing::StripeBytes("new", Spec(2, 1)), absl::StatusCode::kAlreadyExists, "--force replaces it");
  EXPECT_EQ(testing::Tree(Out()), before);
}

TEST_F(StripeWriterTest, ReplacesAnOlderFileAtAllOfItsWorkers) {
  ASSERT_TRUE(testing::StripeBytes("the old one", Spec(4, 1, 2)).ok());
  StripeSpec spec = Spec(2, 1);
  spec.replace = true;
  ASSERT_TRUE(testing::StripeBytes("new", spec).ok());
  const auto after = testing::Tree(Out());
  EXPECT_EQ(after.at("worker-0000/data/stripe-0"), "nw");
  EXPECT_EQ(after.at("worker-0001/data/stripe-0"), "e");
  EXPECT_FALSE(after.contains("worker-0000/data/stripe-1"));
  EXPECT_FALSE(after.contains("worker-0003/data"));
  for (const auto& [name, content] : after) EXPECT_THAT(name, ::testing::Not(HasSubstr(".new-"))) << content.size();
}

TEST_F(StripeWriterTest, LeavesOtherFilesAlone) {
  StripeSpec other = Spec(3, 1);
  other.file = "other";
  ASSERT_TRUE(testing::StripeBytes("other", other).ok());
  const auto before = testing::Tree(Out());
  StripeSpec spec = Spec(5, 1);
  spec.stop_fd = eventfd(1, EFD_CLOEXEC);
  FileDescriptor stop(spec.stop_fd);
  EXPECT_FALSE(testing::StripeBytes("data", spec).ok());
  EXPECT_EQ(testing::Tree(Out()), before);
}

TEST_F(StripeWriterTest, InterruptedLeavesNothing) {
  StripeSpec spec = Spec(3, 1000, 2);
  const FileDescriptor stop(eventfd(0, EFD_CLOEXEC));
  spec.stop_fd = stop.get();
  spec.on_progress = [&](uint64_t bytes) {
    if (bytes >= 2 << 20) eventfd_write(stop.get(), 1);
  };
  ExpectRefused(testing::StripeBytes(testing::SourceBytes(4 << 20), spec), absl::StatusCode::kCancelled, "interrupted");
  EXPECT_FALSE(std::filesystem::exists(Out()));
}

TEST_F(StripeWriterTest, InterruptedWhileItReplacesKeepsTheOldFile) {
  ASSERT_TRUE(testing::StripeBytes("old", Spec(2, 1)).ok());
  const auto before = testing::Tree(Out());
  StripeSpec spec = Spec(3, 1000);
  spec.replace = true;
  const FileDescriptor stop(eventfd(0, EFD_CLOEXEC));
  spec.stop_fd = stop.get();
  spec.on_progress = [&](uint64_t) { eventfd_write(stop.get(), 1); };
  ExpectRefused(testing::StripeBytes(testing::SourceBytes(4 << 20), spec), absl::StatusCode::kCancelled, "interrupted");
  EXPECT_EQ(testing::Tree(Out()), before);
}

TEST_F(StripeWriterTest, IsInterruptedWhileItWaitsForAPipe) {
  Pipe pipe;
  StripeSpec spec = Spec(2, 10);
  const FileDescriptor stop(eventfd(0, EFD_CLOEXEC));
  spec.stop_fd = stop.get();
  ASSERT_TRUE(WriteAll(pipe.in.get(), "some bytes", "pipe").ok());
  std::thread interrupter([&] { eventfd_write(stop.get(), 1); });
  ExpectRefused(StripeFile(pipe.out.get(), spec), absl::StatusCode::kCancelled, "interrupted");
  interrupter.join();
  EXPECT_FALSE(std::filesystem::exists(Out()));
}

TEST_F(StripeWriterTest, TellsAnInputThatChanges) {
  const std::filesystem::path path = folder_.path() / "input";
  testing::WriteFile(path, testing::SourceBytes(3 << 20));
  const auto input = OpenAt(AT_FDCWD, path, O_RDONLY);
  ASSERT_TRUE(input.ok());
  for (const uint64_t bytes : {4 << 20, 2 << 20}) {
    StripeSpec spec = Spec(2, 1000);
    spec.on_progress = [&](uint64_t) { std::filesystem::resize_file(path, bytes); };
    ASSERT_EQ(lseek(input->get(), 0, SEEK_SET), 0);
    ExpectRefused(StripeFile(input->get(), spec), absl::StatusCode::kAborted, "the input changed");
    EXPECT_FALSE(std::filesystem::exists(Out()));
  }
}

TEST_F(StripeWriterTest, TellsAnInputThatCannotBeRead) {
  const auto folder = OpenAt(AT_FDCWD, folder_.path(), O_RDONLY);
  ASSERT_TRUE(folder.ok());
  ExpectRefused(StripeFile(folder->get(), Spec(2, 10)), absl::StatusCode::kFailedPrecondition, "cannot read the input");
  EXPECT_FALSE(StripeFile(-1, Spec(2, 10)).ok());
  EXPECT_FALSE(std::filesystem::exists(Out()));
}

// A limit on the size of files simulates a full disk: both fail in the middle of a write.
TEST_F(StripeWriterTest, AWriteThatFailsLeavesNothing) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const std::string source = testing::SourceBytes(4 << 20);
  testing::WriteFile(folder_.path() / "input", source);
  const auto input = OpenAt(AT_FDCWD, folder_.path() / "input", O_RDONLY);
  ASSERT_TRUE(input.ok());
  const rlimit small = {1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto result = StripeFile(input->get(), Spec(2, 1000));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("out/worker-000"));
  EXPECT_FALSE(std::filesystem::exists(Out()));
}

TEST_F(StripeWriterTest, NamesTheFolderThatItCannotMake) {
  StripeSpec spec = Spec(2, 10);
  spec.root = folder_.path() / "no/such/folder";
  ExpectRefused(testing::StripeBytes("x", spec), absl::StatusCode::kNotFound, "no/such/folder");
}

TEST_F(StripeWriterTest, RefusesAWorkerFolderThatIsALinkOrAFile) {
  namespace fs = std::filesystem;
  fs::create_directories(Out());
  fs::create_directory(folder_.path() / "elsewhere");
  fs::create_directory_symlink(folder_.path() / "elsewhere", Out() / "worker-0001");
  ExpectRefused(testing::StripeBytes("x", Spec(2, 10)), absl::StatusCode::kFailedPrecondition,
                "worker-0001 must be a folder, and no link");
  EXPECT_FALSE(fs::exists(Out() / "worker-0000"));
  EXPECT_THAT(testing::Tree(folder_.path() / "elsewhere"), IsEmpty());
}

// Publishing fails at the second worker, and the first one gets its old file back.
TEST_F(StripeWriterTest, TakesBackWhatWasPublishedWhenAWorkerFails) {
  ASSERT_TRUE(testing::StripeBytes("old", Spec(1, 1)).ok());
  const auto before = testing::Tree(Out() / "worker-0000");
  StripeSpec spec = Spec(2, 1);
  spec.replace = true;
  // Another process removes the staged folder after the writer has checked it.
  spec.on_progress = [&](uint64_t) { std::filesystem::remove_all(Out() / "worker-0001/.new-data"); };
  const auto result = testing::StripeBytes("new", spec);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(testing::Tree(Out() / "worker-0000"), before);
}

TEST_F(StripeWriterTest, RefusesASecondRunInTheSameFolder) {
  ASSERT_TRUE(testing::StripeBytes("old", Spec(2, 1)).ok());
  const auto root = OpenAt(AT_FDCWD, Out(), O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(root.ok());
  ASSERT_EQ(flock(root->get(), LOCK_EX | LOCK_NB), 0);
  StripeSpec spec = Spec(2, 1);
  spec.replace = true;
  ExpectRefused(testing::StripeBytes("new", spec), absl::StatusCode::kUnavailable, "another run");
}

TEST_F(StripeWriterTest, RemovesWhatAKilledRunLeft) {
  std::filesystem::create_directories(Out() / "worker-0001/.new-data");
  std::filesystem::create_directories(Out() / "worker-0009/.new-data");
  testing::WriteFile(Out() / "worker-0001/.new-data/stripe-0", "half");
  ASSERT_TRUE(testing::StripeBytes("new", Spec(2, 1)).ok());
  EXPECT_FALSE(std::filesystem::exists(Out() / "worker-0009/.new-data"));
  EXPECT_EQ(testing::ReadFile(Out() / "worker-0001/data/stripe-0"), "e");
  EXPECT_EQ(VerifyStripes(Out(), {}).value().problems, 0u);
}

}  // namespace
}  // namespace sluice
