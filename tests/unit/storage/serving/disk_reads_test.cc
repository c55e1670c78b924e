#include "lib/storage/serving/disk_reads.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/io_thread.h"
#include "lib/storage/serving/data_check.h"
#include "lib/storage/serving/rpc_server.h"
#include "lib/storage/serving/sru_server.h"
#include "prometheus/registry.h"
#include "tests/eventually.h"
#include "tests/unit/storage/serving/sru_read.h"
#include "tests/unit/storage/serving/sru_request.h"
#include "tests/unit/storage/stripe/striped_folder.h"

namespace sluice {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;

// Reads of worker 1 hang until the test lets them go.
class HangingStore final : public StripeStore {
 public:
  explicit HangingStore(StripeStore store) : StripeStore(std::move(store)) {}
  ~HangingStore() override { LetGo(); }

  absl::Status Read(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset, uint32_t length,
                    std::string* out) const override {
    if (worker == 1) Hang();
    return StripeStore::Read(worker, file, replica, offset, length, out);
  }
  absl::StatusOr<uint64_t> ReadManifest(uint32_t worker, std::string_view file, uint64_t offset, uint32_t length,
                                        std::string* out) const override {
    if (worker == 1) Hang();
    return StripeStore::ReadManifest(worker, file, offset, length, out);
  }

  bool CanReadCached(uint32_t) const override { return true; }
  bool ReadCached(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset, uint32_t length,
                  uint32_t check_length, std::string* out) const override {
    return worker != 1 && StripeStore::ReadCached(worker, file, replica, offset, length, check_length, out);
  }

  void LetGo() {
    if (!let_go_.HasBeenNotified()) let_go_.Notify();
  }
  int hanging() const { return hanging_; }

 private:
  void Hang() const {
    ++hanging_;
    let_go_.WaitForNotification();
    --hanging_;
  }

  absl::Notification let_go_;
  mutable std::atomic<int> hanging_ = 0;
};

// A server with "data" at two workers, the second of which is on a disk that hangs.
class DiskReadsTest : public ::testing::Test {
 protected:
  ~DiskReadsTest() override { store_.LetGo(); }

  void Start(std::chrono::nanoseconds deadline) {
    ASSERT_TRUE(testing::StripeBytes(testing::SourceBytes(1000),
                                     {.root = folder_.path(), .file = "data", .workers = 2, .sru_bytes = 100})
                    .ok());
    service_ = std::make_unique<SruServer>(store_, metrics_, reports_, io_thread_.context(),
                                           SruServer::Options{.disk = {.deadline = deadline}});
    auto server = RpcServer::Start({.listen = {"127.0.0.1:0"}}, {service_.get()});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::SruService::NewStub(grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials()));
  }

  grpc::Status Read(uint32_t worker) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(testing::kPatience));
    v1::ReadSruResponse response;
    return ReadSru(*stub_, context, SruRequest("data", worker, 0, 100), response);
  }
  grpc::Status ReadManifest(uint32_t worker) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(testing::kPatience));
    v1::ReadManifestRequest request;
    request.set_file("data");
    request.set_worker(worker);
    request.set_length(100);
    v1::ReadManifestResponse response;
    return stub_->ReadManifest(&context, request, &response);
  }

  double SilentDisks() const {
    for (const auto& family : registry_.Collect()) {
      if (family.name == "sluice_worker_silent_disks") return family.metric.at(0).gauge.value;
    }
    return -1;
  }

  testing::TemporaryFolder folder_;
  IoThread io_thread_;
  HangingStore store_{StripeStore::Open(folder_.path()).value()};
  prometheus::Registry registry_;
  WorkerMetrics metrics_{registry_};
  TcpReports reports_;
  std::unique_ptr<SruServer> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::SruService::Stub> stub_;
};

// More reads than gRPC has threads.
TEST_F(DiskReadsTest, ADiskThatHangsStopsNoOther) {
  Start(std::chrono::hours(1));
  std::atomic<int> ended = 0;
  std::vector<std::unique_ptr<AsyncSruRead>> reads;
  for (int i = 0; i < 64; ++i) {
    reads.push_back(
        std::make_unique<AsyncSruRead>(*stub_, SruRequest("data", 1, 0, 100), [&](const grpc::Status& status) {
          EXPECT_TRUE(status.ok()) << status.error_message();
          ++ended;
        }));
  }
  EXPECT_TRUE(Eventually([&] { return store_.hanging() == 4; }));
  const grpc::Status other = Read(0);
  EXPECT_TRUE(other.ok()) << other.error_message();
  EXPECT_TRUE(ReadManifest(0).ok());
  EXPECT_EQ(Read(7).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(store_.hanging(), 4);
  EXPECT_EQ(ended, 0);
  store_.LetGo();
  EXPECT_TRUE(Eventually([&] { return ended == 64; }));
}

TEST_F(DiskReadsTest, ADiskThatHangsIsGivenUpAndComesBack) {
  Start(std::chrono::milliseconds(50));
  const grpc::Status late = Read(1);
  EXPECT_EQ(late.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(late.error_message(), "the disk of worker-0001 has not completed a read for 50ms");
  EXPECT_EQ(ReadManifest(1).error_message(), late.error_message());
  EXPECT_EQ(store_.hanging(), 1) << "the second one was refused at once";
  EXPECT_TRUE(Read(0).ok());
  EXPECT_EQ(SilentDisks(), 1);
  store_.LetGo();
  EXPECT_TRUE(Eventually([&] { return Read(1).ok(); }));
  EXPECT_TRUE(ReadManifest(1).ok());
  EXPECT_TRUE(Eventually([&] { return SilentDisks() == 0; }));
}

TEST_F(DiskReadsTest, AFolderThatComesLaterIsRead) {
  Start(std::chrono::hours(1));
  EXPECT_EQ(Read(2).error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(testing::StripeBytes(testing::SourceBytes(1000),
                                   {.root = folder_.path(), .file = "later", .workers = 3, .sru_bytes = 100})
                  .ok());
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    v1::ReadSruResponse response;
    EXPECT_TRUE(ReadSru(*stub_, context, SruRequest("later", 2, 0, 100), response).ok());
  }
}

TEST(DataCheckTest, ReturnsTheResultOfTheCheck) {
  absl::Status result;
  DataCheck check([&] { return result; });
  EXPECT_TRUE(check.Look().ok());
  result = absl::NotFoundError("no folder");
  EXPECT_EQ(check.Look(), result);
  result = absl::OkStatus();
  EXPECT_TRUE(check.Look().ok());
}

TEST(DataCheckTest, DoesNotWaitForADiskThatHangs) {
  absl::Notification let_go;
  std::atomic<TimePoint> now = TimePoint() + std::chrono::hours(1);
  std::atomic<int> checks = 0;
  DataCheck check(
      [&] {
        if (++checks == 2) let_go.WaitForNotification();
        return absl::OkStatus();
      },
      {.now = [&] { return now.load(); }});
  EXPECT_TRUE(check.Look().ok());
  EXPECT_TRUE(check.Look().ok()) << "it may only be slow";
  now = now.load() + std::chrono::seconds(5);
  EXPECT_THAT(std::string(check.Look().message()), HasSubstr("the disk of the data has not completed a read for 5s"));
  EXPECT_FALSE(check.Look().ok());
  EXPECT_EQ(checks, 2);
  let_go.Notify();
  EXPECT_TRUE(Eventually([&] { return check.Look().ok(); }));
}

}  // namespace
}  // namespace sluice
