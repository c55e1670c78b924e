#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "sluice/v1/probe_service.grpc.pb.h"
#include "sluice/v1/sru_service.grpc.pb.h"

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/system/apps/health_watch.h"
#include "tests/system/apps/metrics_client.h"
#include "tests/system/apps/run_program.h"
#include "tests/unit/storage/serving/sru_read.h"
#include "tests/unit/storage/stripe/striped_folder.h"
#include "tests/wait_until.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using testing::BackgroundProgram;
using ::testing::HasSubstr;
using testing::ProgramResult;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr auto kPatience = std::chrono::seconds(30);

std::chrono::system_clock::time_point Deadline() {
  return std::chrono::system_clock::now() + kPatience;
}

class SluiceWorkerTest : public ::testing::Test {
 protected:
  SluiceWorkerTest() {
    EXPECT_TRUE(
        testing::StripeBytes(source_, {.root = Path("data"), .file = "file", .workers = 2, .sru_bytes = 10}).ok());
  }

  std::string Path(const std::string& name) { return folder_.path() / name; }

  ProgramResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), SLUICE_WORKER_BINARY);
    return testing::RunProgram(arguments);
  }

  // Starts a worker on a free port of loopback, waits until it serves, and stores its addresses in addresses_.
  void Start(std::vector<std::string> arguments = {"--listen", "127.0.0.1:0"}, const std::string& data = "data") {
    const std::vector<std::string> common = {"--data", Path(data), "--ready-file", Path("ready")};
    arguments.insert(arguments.begin(), common.begin(), common.end());
    arguments.insert(arguments.begin(), SLUICE_WORKER_BINARY);
    program_ = std::make_unique<BackgroundProgram>(arguments);
    ASSERT_TRUE(program_->WaitForStderr("msg=serving")) << program_->err();
    WaitUntil([&] { return std::filesystem::exists(Path("ready")); }, absl::FromChrono(kPatience));
    std::istringstream lines(testing::ReadFile(Path("ready")));
    for (std::string line; std::getline(lines, line);) addresses_.push_back(line);
    ASSERT_FALSE(addresses_.empty());
  }

  std::unique_ptr<v1::SruService::Stub> Stub(size_t address = 0) {
    return v1::SruService::NewStub(grpc::CreateChannel(addresses_.at(address), grpc::InsecureChannelCredentials()));
  }

  grpc::Status Read(v1::SruService::Stub& stub, uint32_t worker, std::string& data) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    v1::ReadSruResponse response;
    const grpc::Status status = ReadSru(stub, context, Request(worker), response);
    data = response.data();
    return status;
  }

  static v1::ReadSruRequest Request(uint32_t worker) {
    v1::ReadSruRequest request;
    request.set_file("file");
    request.set_worker(worker);
    request.set_length(10);
    return request;
  }

  void ExpectStopsWhole(int signal) {
    program_->Signal(signal);
    const auto result = program_->Wait();
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->exit_code, 0) << result->err;
    EXPECT_THAT(result->err, AllOf(HasSubstr("msg=draining"), HasSubstr("msg=stopped")));
  }

  const std::string source_ = testing::SourceBytes(40);
  testing::TemporaryFolder folder_;
  std::unique_ptr<BackgroundProgram> program_;
  std::vector<std::string> addresses_;
};

TEST_F(SluiceWorkerTest, ExplainsItself) {
  const ProgramResult help = Run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* flag : {"--listen", "--data", "--admin", "--config", "--check_config", "--think_time",
                           "--think_tail_time", "--think_tail_share", "--probe", "--reflection", "--log_level",
                           "--drain_timeout", "--drain_delay", "--ready_file"})
    EXPECT_THAT(help.out, HasSubstr(flag));
  const ProgramResult version = Run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, StartsWith("sluice-worker "));
}

TEST_F(SluiceWorkerTest, RefusesWhatWasWrittenWrong) {
  const std::string data = "--data=" + Path("data");
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{data}, "listen: no address is given"},
      {{data, "--listen", "here"}, "listen: \"here\" is neither an IP address with a port nor a Unix socket"},
      {{data, "--listen", "127.0.0.1:70000"}, "listen: \"127.0.0.1:70000\" is neither"},
      {{data, "--listen", "127.0.0.1:0,there"}, "listen: \"there\""},
      {{"--listen", "127.0.0.1:0"}, "data: no folder is given"},
      {{data, "--listen", "127.0.0.1:0", "--admin", "x"}, "admin: \"x\" has no port"},
      {{data, "--listen", "127.0.0.1:0", "--think-time", "soon"}, "think_time: "},
      {{data, "--listen", "127.0.0.1:0", "--think-tail-time", "soon"}, "think_tail.time: "},
      {{data, "--listen", "127.0.0.1:0", "--think-tail-time", "1s"},
       "think_tail.share is 0 and think_tail.time 1s; give both above 0, or neither"},
      {{data, "--listen", "127.0.0.1:0", "--think-tail-share", "1.5", "--think-tail-time", "1s"},
       "think_tail.share is 1.5; it must be 0 to 1"},
      {{data, "--listen", "127.0.0.1:0", "--think-tail-share", "0.1", "--think-tail-time", "2h"},
       "think_tail.time 2h, drain_timeout , drain_delay : each must be at most 1h"},
      {{data, "--listen", "127.0.0.1:0", "--drain-timeout", "2h"},
       "drain_timeout 2h, drain_delay : each must be at most 1h"},
      {{data, "--listen", "127.0.0.1:0", "--log-level", "loud"}, "log_level: \"loud\""},
      {{data, "--listen", "127.0.0.1:0", "--lisen", "x"}, "--lisen"},
  };
  for (const auto& [arguments, message] : cases) {
    const ProgramResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

TEST_F(SluiceWorkerTest, NamesATypoInItsConfig) {
  testing::WriteFile(Path("config"), R"({"listen": ["127.0.0.1:0"], "dta": "x"})");
  const ProgramResult result = Run({"--config", Path("config"), "--check-config"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("dta"));
}

TEST_F(SluiceWorkerTest, ChecksAConfigAndStartsNothing) {
  testing::WriteFile(Path("config"), R"({"listen": ["127.0.0.1:0"], "data": "/nowhere", "think_time": "1ms"})");
  const ProgramResult result = Run({"--config", Path("config"), "--check-config", "--data", Path("data")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "config ok\n");
}

TEST_F(SluiceWorkerTest, ChecksThatFoldersExistAndAddressesAreValid) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--data", "/nowhere"}, "data folder"},
      {{"--data", Path("config")}, "data folder"},
      {{"--ready-file", "/nowhere/ready"}, "ready_file: the folder of \"/nowhere/ready\" does not exist"},
      {{"--listen", "unix:"}, "listen: \"unix:\" is neither"},
      {{"--listen", "unix:/" + std::string(107, 'x')}, "1 to 107 bytes"},
  };
  testing::WriteFile(Path("config"), "{}");
  for (const auto& [wrong, message] : cases) {
    std::vector<std::string> arguments = {"--check-config"};
    if (wrong[0] != "--data") arguments.insert(arguments.end(), {"--data", Path("data")});
    if (wrong[0] != "--listen") arguments.insert(arguments.end(), {"--listen", "127.0.0.1:0"});
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    const ProgramResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

TEST_F(SluiceWorkerTest, AFlagWinsOverTheConfig) {
  testing::WriteFile(Path("config"), R"({"listen": ["127.0.0.1:1"], "data": "/nowhere"})");
  Start({"--config", Path("config"), "--listen", "127.0.0.1:0"});
  std::string data;
  EXPECT_TRUE(Read(*Stub(), 0, data).ok());
}

TEST_F(SluiceWorkerTest, ServesEveryWorkerOnEveryAddress) {
  Start({"--listen", "127.0.0.1:0,127.0.0.1:0", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"});
  ASSERT_THAT(addresses_, SizeIs(4));  // the last address is the admin server's
  EXPECT_NE(addresses_[0], addresses_[1]);
  for (size_t address = 0; address < 3; ++address) {
    for (uint32_t worker = 0; worker < 2; ++worker) {
      std::string data;
      const grpc::Status status = Read(*Stub(address), worker, data);
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(data, source_.substr(10 * worker, 10));
    }
  }
  ExpectStopsWhole(SIGTERM);
}

TEST_F(SluiceWorkerTest, AnswersProbesUnlessItIsToldNotTo) {
  const auto probe = [this] {
    const auto stub =
        v1::ProbeService::NewStub(grpc::CreateChannel(addresses_.at(0), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    v1::ProbeRequest request;
    request.set_payload_bytes(1000);
    v1::ProbeResponse response;
    const grpc::StatusCode code = stub->Probe(&context, request, &response).error_code();
    EXPECT_EQ(response.payload().size(), code == grpc::StatusCode::OK ? 1000 : 0);
    return code;
  };
  testing::WriteFile(Path("config"), R"({"probe": false})");
  const std::pair<std::vector<std::string>, grpc::StatusCode> cases[] = {
      {{}, grpc::StatusCode::OK},
      {{"--no-probe"}, grpc::StatusCode::UNIMPLEMENTED},
      {{"--config", Path("config")}, grpc::StatusCode::UNIMPLEMENTED},
      {{"--config", Path("config"), "--probe"}, grpc::StatusCode::OK},
  };
  for (auto [arguments, code] : cases) {
    arguments.insert(arguments.end(), {"--listen", "127.0.0.1:0"});
    Start(arguments);
    EXPECT_EQ(probe(), code) << ::testing::PrintToString(arguments);
    ExpectStopsWhole(SIGTERM);
    addresses_.clear();
    std::filesystem::remove(Path("ready"));
  }
}

TEST_F(SluiceWorkerTest, FailsOnABusyPortAndNamesIt) {
  Start();
  const ProgramResult result = Run({"--data", Path("data"), "--listen", "127.0.0.1:0," + addresses_[0]});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat("sluice-worker: cannot listen on ", addresses_[0])));
}

TEST_F(SluiceWorkerTest, FailsWithoutItsDataFolder) {
  const ProgramResult result = Run({"--data", Path("nowhere"), "--listen", "127.0.0.1:0"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("nowhere"));
}

TEST_F(SluiceWorkerTest, StopsOnSigint) {
  Start();
  ExpectStopsWhole(SIGINT);
}

TEST_F(SluiceWorkerTest, FinishesTheCallInFlightWhenItIsTerminated) {
  Start({"--listen", "127.0.0.1:0", "--think-time", "1s", "--admin", "127.0.0.1:0"});
  const auto stub = Stub();
  grpc::Status status;
  absl::Notification done;
  AsyncSruRead read(*stub, Request(1), [&](const grpc::Status& result) {
    status = result;
    done.Notify();
  });
  ASSERT_TRUE(testing::WaitForMetric(addresses_[1], "sluice_worker_read_seconds_count 1"));  // in its think time
  ExpectStopsWhole(SIGTERM);
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::FromChrono(kPatience)));
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(read.response().data(), source_.substr(10, 10));
}

TEST_F(SluiceWorkerTest, CancelsWhatOutlivesTheDrain) {
  Start({"--listen", "127.0.0.1:0", "--think-time", "1h", "--drain-timeout", "50ms", "--admin", "127.0.0.1:0"});
  const auto stub = Stub();
  absl::Notification done;
  AsyncSruRead read(*stub, Request(0), [&](const grpc::Status& result) {
    EXPECT_FALSE(result.ok());
    done.Notify();
  });
  ASSERT_TRUE(testing::WaitForMetric(addresses_[1], "sluice_worker_read_seconds_count 1"));
  ExpectStopsWhole(SIGTERM);
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::FromChrono(kPatience)));
}

TEST_F(SluiceWorkerTest, TellsItsHealthAndThatItGoes) {
  Start({"--listen", "127.0.0.1:0", "--drain-timeout", "1h"});
  testing::HealthWatch watch(addresses_[0]);
  EXPECT_EQ(watch.Next(), "SERVING");
  program_->Signal(SIGTERM);
  EXPECT_EQ(watch.Next(), "NOT_SERVING");
  const auto result = program_->Wait();
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->exit_code, 0);
}

TEST_F(SluiceWorkerTest, WarnsOfAFolderWithoutWorkersAndFindsThemLater) {
  std::filesystem::create_directory(Path("later"));
  Start({"--listen", "127.0.0.1:0"}, "later");
  EXPECT_THAT(program_->err(), HasSubstr("level=warning msg=\"no worker-NNNN folder is there yet"));
  const auto stub = Stub();
  std::string data;
  EXPECT_EQ(Read(*stub, 0, data).error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(
      testing::StripeBytes(source_, {.root = Path("later"), .file = "file", .workers = 2, .sru_bytes = 10}).ok());
  EXPECT_TRUE(Read(*stub, 0, data).ok());
}

}  // namespace
}  // namespace sluice
