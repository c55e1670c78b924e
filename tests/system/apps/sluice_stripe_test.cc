#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/system/apps/run_program.h"
#include "tests/unit/storage/stripe/striped_folder.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using testing::ProgramResult;
using testing::RunProgram;
using ::testing::StartsWith;

class SluiceStripeTest : public ::testing::Test {
 protected:
  SluiceStripeTest() { testing::WriteFile(folder_.path() / "photo.jpg", source_); }

  ProgramResult Run(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), SLUICE_STRIPE_BINARY);
    return RunProgram(arguments, input);
  }

  std::string Path(const std::string& name) { return folder_.path() / name; }

  const std::string source_ = testing::SourceBytes(100'000);
  testing::TemporaryFolder folder_;
};

TEST_F(SluiceStripeTest, ExplainsItself) {
  const ProgramResult help = Run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--workers"));
  const ProgramResult version = Run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, StartsWith("sluice-stripe "));
}

TEST_F(SluiceStripeTest, StripesAFileUnderItsOwnNameAndSaysSo) {
  const ProgramResult result = Run({"--workers", "4", "--sru", "1kb", "--out", Path("out"), Path("photo.jpg")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("photo.jpg: 100000 bytes in 98 SRUs of 1024 over 4 workers, replicas 1, CRC32C "));
  EXPECT_EQ(result.err, "");  // no progress, because stderr is not a terminal
  EXPECT_EQ(testing::ReadFile(Path("out/worker-0002/photo.jpg/stripe-0")).substr(0, 1024), source_.substr(2048, 1024));
  const ProgramResult wrong_folder = Run({"--verify", Path("out/worker-0000")});
  EXPECT_EQ(wrong_folder.exit_code, 1) << wrong_folder.out;
  EXPECT_THAT(wrong_folder.err, HasSubstr("no striped files; give the folder that has the worker-NNNN folders"));
  const ProgramResult verify = Run({"--verify", Path("out")});
  EXPECT_EQ(verify.exit_code, 0) << verify.err;
  EXPECT_THAT(verify.out, HasSubstr("1 files, 4 stripes, 98 SRUs, 100000 bytes, 0 problems"));
}

TEST_F(SluiceStripeTest, StripesStdin) {
  const ProgramResult result =
      Run({"--workers=3", "--sru=1000", "--replicas=2", "--name=piped", "--out=" + Path("out"), "-"}, source_);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("piped: 100000 bytes in 100 SRUs of 1000 over 3 workers, replicas 2"));
  EXPECT_EQ(testing::ReadFile(Path("out/worker-0001/piped/stripe-1")).substr(0, 1000), source_.substr(0, 1000));
}

TEST_F(SluiceStripeTest, ReplacesOnlyWithForce) {
  const std::vector<std::string> arguments = {"--workers", "2", "--out", Path("out"), Path("photo.jpg")};
  ASSERT_EQ(Run(arguments).exit_code, 0);
  const ProgramResult refused = Run(arguments);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("photo.jpg exists; --force replaces it"));
  std::vector<std::string> forced = arguments;
  forced.push_back("--force");
  EXPECT_EQ(Run(forced).exit_code, 0);
}

TEST_F(SluiceStripeTest, ShowsAManifestAsJson) {
  ASSERT_EQ(Run({"--workers", "2", "--sru", "60000", "--out", Path("out"), Path("photo.jpg")}).exit_code, 0);
  const ProgramResult shown = Run({"--show", Path("out/worker-0000/photo.jpg/manifest")});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  for (const char* line : {"\"file_bytes\": \"100000\"", "\"sru_bytes\": 60000", "\"workers\": 2", "\"replicas\": 1"})
    EXPECT_THAT(shown.out, HasSubstr(line));
}

TEST_F(SluiceStripeTest, SaysWhyAManifestCannotBeShown) {
  testing::WriteFile(Path("manifest"), "SLUICEMF");
  const ProgramResult truncated = Run({"--show", Path("manifest")});
  EXPECT_EQ(truncated.exit_code, 1);
  EXPECT_THAT(truncated.err, HasSubstr("manifest is truncated: 8 bytes of 24"));
  std::filesystem::create_directory(Path("out"));
  const ProgramResult folder = Run({"--show", Path("out")});
  EXPECT_EQ(folder.exit_code, 1);
  EXPECT_THAT(folder.err, HasSubstr("out is a folder; give a manifest, or the folder to --verify"));
  const ProgramResult missing = Run({"--show", Path("nowhere")});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("nowhere: cannot be read"));
}

TEST_F(SluiceStripeTest, VerifyNamesWorkerAndSruOfAFlippedByte) {
  ASSERT_EQ(Run({"--workers", "4", "--sru", "1kb", "--out", Path("out"), Path("photo.jpg")}).exit_code, 0);
  testing::FlipByte(Path("out/worker-0003/photo.jpg/stripe-0"), 1024);
  const ProgramResult result = Run({"--verify", Path("out")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("worker-0003/photo.jpg: SRU 7 in stripe-0: CRC32C expected "));
  EXPECT_THAT(result.err, HasSubstr(", found "));
}

TEST_F(SluiceStripeTest, RefusesWhatWasWrittenWrong) {
  const std::string file = Path("photo.jpg");
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{}, "give one of"},
      {{"--verify", Path("out"), "--show", file}, "give one of"},
      {{file, "--workers", "4"}, "--out is missing"},
      {{file, "--out", Path("out")}, "--workers is 0; it must be 1 to 65536"},
      {{file, "--out", Path("out"), "--workers", "-1"}, "--workers is -1"},
      {{file, "--out", Path("out"), "--workers", "four"}, "--workers"},
      {{file, "--out", Path("out"), "--workers", "4", "--sru", "0"}, "--sru is 0; it must be 1 to 67108864"},
      {{file, "--out", Path("out"), "--workers", "4", "--sru", "65mb"}, "--sru is 68157440"},
      {{file, "--out", Path("out"), "--workers", "4", "--sru", "10xb"}, "10xb"},
      {{file, "--out", Path("out"), "--workers", "4", "--replicas", "5"}, "--replicas is 5; it must be 1 to 4"},
      {{file, "--out", Path("out"), "--workers", "4", "--name", "../x"}, "has a '/'"},
      {{"-", "--out", Path("out"), "--workers", "4"}, "--name is missing"},
      {{file, "--out", Path("out"), "--workers", "4", "--forse"}, "--forse"},
  };
  for (const auto& [arguments, message] : cases) {
    const ProgramResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 2) << message << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
}

TEST_F(SluiceStripeTest, FailsOnAnInputThatIsNotThere) {
  const ProgramResult result = Run({"--workers", "4", "--out", Path("out"), Path("nowhere")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("nowhere"));
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
}

TEST_F(SluiceStripeTest, ASignalInTheMiddleLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM}) {
    ASSERT_EQ(mkfifo(Path("slow").c_str(), 0600), 0);
    testing::BackgroundProgram program({SLUICE_STRIPE_BINARY, "--workers", "4", "--out", Path("out"), Path("slow")});
    const FileDescriptor writer(open(Path("slow").c_str(), O_WRONLY));
    ASSERT_TRUE(WriteAll(writer.get(), source_, "fifo").ok());  // a pipe holds less, so the program reads
    program.Signal(signal);
    const auto result = program.Wait();
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->exit_code, 1);
    EXPECT_THAT(result->err, HasSubstr("interrupted; nothing was kept"));
    EXPECT_FALSE(std::filesystem::exists(Path("out")));
    std::filesystem::remove(Path("slow"));
  }
}

}  // namespace
}  // namespace sluice
