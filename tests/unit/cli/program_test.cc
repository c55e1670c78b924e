#include "lib/cli/program.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sluice/v1/config.pb.h"

#include "lib/cli/ready_file.h"
#include "lib/telemetry/build_info.h"
#include "tests/unit/cli/temp_file.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Result {
  int exit_code;
  std::string out;
  std::string err;
};

class ProgramTest : public ::testing::Test {
 protected:
  ProgramTest() {
    program_ = {.name = "sluice-test",
                .description = "Tests.",
                .add_flags = [this](CLI::App& app) { AddFlags(app); },
                .config = &config_,
                .configure = [this] { return configured_; },
                .run =
                    [this] {
                      ++runs_;
                      return ran_;
                    }};
  }

  void AddFlags(CLI::App& app) {
    app.add_option_function<std::string>("--drain_timeout",
                                         [this](const auto& text) { config_.set_drain_timeout(text); });
    app.add_option_function<bool>("--reflection", [this](bool on) { config_.set_reflection(on); });
    AddListFlag(app, "--workers", "Workers", [this](const std::vector<std::string>& list) {
      config_.clear_workers();
      for (const std::string& worker : list) config_.add_workers(worker);
    });
    app.add_option("file", file_);
  }

  Result Run(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "sluice-test");
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int exit_code = RunProgram(static_cast<int>(arguments.size()), arguments.data(), program_);
    return {exit_code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
  }

  Program program_;
  v1::AggregatorConfig config_;
  std::string file_;
  absl::Status configured_;
  absl::Status ran_;
  int runs_ = 0;
};

TEST_F(ProgramTest, HelpAndVersionExitWithZeroAndRunNothing) {
  const Result help = Run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Tests."));
  EXPECT_THAT(help.out, HasSubstr("--check_config"));
  const Result version = Run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, ::testing::StartsWith("sluice-test " + std::string(BuildVersion())));
  EXPECT_EQ(runs_, 0);
}

TEST_F(ProgramTest, HelpBeginsWithAnExampleAndTheMainFlags) {
  program_.example = "--workers a:1,b:1 --drain-timeout 5s";
  program_.main_flags = {"--workers", "--drain_timeout"};
  const std::string help = Run({"--help"}).out;
  EXPECT_THAT(help, ::testing::StartsWith("Tests.\n"
                                          "\n"
                                          "Example:\n"
                                          "  sluice-test --workers a:1,b:1 --drain-timeout 5s\n"
                                          "\n"
                                          "Start with:\n"
                                          "  --workers TEXT,...          Workers\n"
                                          "  --drain_timeout TEXT"));
  const size_t rest = help.find("Usage: sluice-test [OPTIONS] [file]");
  ASSERT_NE(rest, std::string::npos) << help;
  EXPECT_EQ(help.find("--workers TEXT", rest), std::string::npos) << "is listed once";
  EXPECT_NE(help.find("--check_config", rest), std::string::npos);
}

TEST_F(ProgramTest, RunsOnceAndExitsWithZero) {
  const Result result = Run({});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_EQ(runs_, 1);
}

TEST_F(ProgramTest, UsageErrorsExitWithTwoAndNameTheArgument) {
  for (const std::vector<const char*>& arguments :
       {std::vector<const char*>{"--bogus"}, {"--reflection", "bogus"}, {"file", "bogus"}, {"--bogus=1"}}) {
    const Result result = Run(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, ::testing::StartsWith("sluice-test: "));
    EXPECT_THAT(result.err, HasSubstr("bogus"));
  }
  EXPECT_EQ(runs_, 0);
}

TEST_F(ProgramTest, AnEmptyEntryOfAListIsRefused) {
  for (const char* list : {"a,,b", "a,", ",a", ","}) {
    const Result result = Run({"--workers", list});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("--workers: \"" + std::string(list) + "\" has an empty entry"));
  }
  EXPECT_EQ(Run({"--workers", "a,b", "--workers", "c"}).exit_code, 0);
  EXPECT_THAT(config_.workers(), ElementsAre("a", "b", "c"));
}

TEST_F(ProgramTest, AConfigurationErrorExitsWithTwo) {
  configured_ = absl::NotFoundError("link.capacity: \"abc\" is not a rate");
  const Result result = Run({});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err, "sluice-test: link.capacity: \"abc\" is not a rate\n");
  EXPECT_EQ(runs_, 0);
}

TEST_F(ProgramTest, CheckConfigAloneLooksForWhatTheRunWouldOpen) {
  program_.check = [] { return absl::NotFoundError("data: /nowhere does not exist"); };
  const Result checked = Run({"--check-config"});
  EXPECT_EQ(checked.exit_code, 2);
  EXPECT_EQ(checked.err, "sluice-test: data: /nowhere does not exist\n");
  EXPECT_THAT(checked.out, IsEmpty());
  EXPECT_EQ(Run({}).exit_code, 0);
  configured_ = absl::InvalidArgumentError("first");
  EXPECT_EQ(Run({"--check-config"}).err, "sluice-test: first\n");
}

TEST(CheckReadyFileTest, NeedsItsFolder) {
  const std::string folder = ::testing::TempDir();
  EXPECT_EQ(CheckReadyFile(""), absl::OkStatus());
  EXPECT_EQ(CheckReadyFile("ready"), absl::OkStatus()) << "in the current folder";
  EXPECT_EQ(CheckReadyFile(folder + "/ready"), absl::OkStatus());
  EXPECT_EQ(CheckReadyFile(folder + "/nowhere/ready").message(),
            "ready_file: the folder of \"" + folder + "/nowhere/ready\" does not exist; create " + folder + "/nowhere");
}

TEST_F(ProgramTest, AFailureOfTheRunExitsWithOne) {
  ran_ = absl::InvalidArgumentError("the port is in use");
  const Result result = Run({});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "sluice-test: the port is in use\n");
}

TEST_F(ProgramTest, AFailureWithoutATextIsNamedByItsCode) {
  ran_ = absl::UnimplementedError("");
  EXPECT_EQ(Run({}).err, "sluice-test: UNIMPLEMENTED\n");
}

TEST_F(ProgramTest, UnexpectedArgumentsComeInTheirOrder) {
  const std::string text = Run({"--drain-timout", "5s", "--bogus", "--refection=1"}).err;
  EXPECT_THAT(text, ::testing::AnyOf(HasSubstr("not expected: --drain_timout 5s --bogus"),
                                     HasSubstr("not expected: --drain_timout --bogus")));
}

TEST_F(ProgramTest, AListThatHasASpaceIsToldOfCommas) {
  for (const std::vector<const char*>& arguments :
       {std::vector<const char*>{"file", "--workers", "a", "b", "c"},
        {"file", "--workers", "a0", "--workers=a", "b", "--reflection=1"}}) {
    EXPECT_THAT(Run(arguments).err, HasSubstr("\nA list takes commas: --workers a,b\n"));
  }
  EXPECT_THAT(Run({"file", "--workers", "a", "--bogus"}).err, Not(HasSubstr("commas")));
  EXPECT_THAT(Run({"file", "--workers=a", "--reflection", "1", "b"}).err, Not(HasSubstr("commas")));
}

TEST_F(ProgramTest, AnExceptionIsAFailure) {
  program_.run = []() -> absl::Status { throw std::runtime_error("from a library"); };
  const Result result = Run({});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "sluice-test: from a library\n");
}

TEST_F(ProgramTest, TakesOptionNamesWithDashesOrUnderscores) {
  for (const std::vector<const char*>& arguments : {std::vector<const char*>{"--drain-timeout", "a-b_c"},
                                                    {"--drain_timeout", "a-b_c"},
                                                    {"--drain-timeout=a-b_c"},
                                                    {"--drain_timeout=a-b_c"}}) {
    config_.Clear();
    EXPECT_EQ(Run(arguments).exit_code, 0);
    EXPECT_EQ(config_.drain_timeout(), "a-b_c");
  }
}

TEST_F(ProgramTest, LeavesWhatIsBehindTwoDashesAlone) {
  EXPECT_EQ(Run({"--", "--my-file"}).exit_code, 0);
  EXPECT_EQ(file_, "--my-file");
}

TEST_F(ProgramTest, FlagsWinOverTheConfigFileWhereverTheyStand) {
  const std::string path =
      WriteTempFile(R"({"reflection": true, "drain_timeout": "5s", "workers": ["a", "b"], "listen": "x:1"})");
  const std::string config_flag = "--config=" + path;
  for (const std::vector<const char*>& arguments :
       {std::vector<const char*>{config_flag.c_str(), "--reflection=false", "--drain-timeout", "", "--workers", "c,d",
                                 "--workers", "e"},
        {"--reflection=false", "--drain-timeout", "", "--workers", "c,d", "--workers", "e", config_flag.c_str()}}) {
    config_.Clear();
    const Result result = Run(arguments);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_FALSE(config_.reflection());
    EXPECT_EQ(config_.drain_timeout(), "");
    EXPECT_THAT(config_.workers(), ElementsAre("c", "d", "e"));
    EXPECT_EQ(config_.listen(), "x:1");
  }
}

TEST_F(ProgramTest, TellsWhereItsConfigFileIs) {
  std::string config_file;
  program_.config_file = &config_file;
  EXPECT_EQ(Run({}).exit_code, 0);
  EXPECT_EQ(config_file, "");
  const std::string path = WriteTempFile("{}");
  EXPECT_EQ(Run({"--config", path.c_str()}).exit_code, 0);
  EXPECT_EQ(config_file, path);
}

TEST_F(ProgramTest, TheConfigIsReadAgainWithTheFlagsOverIt) {
  const std::string path = WriteTempFile(R"({"drain_timeout": "5s", "listen": "x:1"})");
  const std::vector<const char*> arguments = {"sluice-test", "--config", path.c_str(), "--drain-timeout", "7s"};
  const auto read_again = [&] {
    config_.Clear();
    return ReadConfigAgain(
        static_cast<int>(arguments.size()), arguments.data(), [this](CLI::App& app) { AddFlags(app); }, config_);
  };
  EXPECT_TRUE(read_again().ok());
  EXPECT_EQ(config_.listen(), "x:1");
  EXPECT_EQ(WriteTempFile(R"({"drain_timeout": "6s", "listen": "y:2"})"), path);
  EXPECT_TRUE(read_again().ok());
  EXPECT_EQ(config_.listen(), "y:2");
  EXPECT_EQ(config_.drain_timeout(), "7s");
  WriteTempFile(R"({"lisen": "y:2"})");
  const absl::Status typo = read_again();
  EXPECT_TRUE(absl::IsInvalidArgument(typo));
  EXPECT_THAT(std::string(typo.message()), HasSubstr("lisen"));
}

TEST_F(ProgramTest, ATypoInTheConfigFileExitsWithTwoAndIsNamed) {
  const std::string path = WriteTempFile(R"({"reflexion": true})");
  const Result result = Run({"--config", path.c_str()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr(path));
  EXPECT_THAT(result.err, HasSubstr("reflexion"));
  EXPECT_EQ(runs_, 0);
}

TEST_F(ProgramTest, CheckConfigChecksAndStartsNothing) {
  const Result good = Run({"--check-config"});
  EXPECT_EQ(good.exit_code, 0);
  EXPECT_EQ(good.out, "config ok\n");
  configured_ = absl::InvalidArgumentError("listen: \"x\" has no port");
  const Result bad = Run({"--check-config"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.out, IsEmpty());
  EXPECT_THAT(bad.err, HasSubstr("listen"));
  EXPECT_EQ(runs_, 0);
}

TEST_F(ProgramTest, PrintsItsPartOfTheConfigReferenceAndStartsNothing) {
  configured_ = absl::InvalidArgumentError("listen is empty");
  const Result result = Run({"--config-reference"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, ::testing::StartsWith("## sluice-test\n\nTests.\n\n| field |"));
  EXPECT_EQ(runs_, 0);
  EXPECT_THAT(Run({"--help"}).out, ::testing::Not(HasSubstr("config_reference"))) << "it is for the build";
}

TEST_F(ProgramTest, AProgramWithoutAConfigHasNoConfigFlags) {
  program_.config = nullptr;
  EXPECT_EQ(Run({"--check-config"}).exit_code, 2);
  EXPECT_EQ(Run({"--config", "x"}).exit_code, 2);
  EXPECT_EQ(Run({"x"}).exit_code, 0);
}

}  // namespace
}  // namespace sluice
