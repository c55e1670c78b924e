#include "tools/block_client.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "lib/storage/stripe/crc32c.h"

namespace sluice {
namespace {

v1::ReadResponse Header(uint64_t offset, uint64_t length, uint64_t file_bytes = 100, uint64_t block_bytes = 50) {
  v1::ReadResponse response;
  response.mutable_header()->set_offset(offset);
  response.mutable_header()->set_length(length);
  response.mutable_header()->set_file_bytes(file_bytes);
  response.mutable_header()->set_block_bytes(block_bytes);
  return response;
}

v1::ReadResponse Chunk(uint64_t offset, const std::string& data) {
  v1::ReadResponse response;
  response.mutable_chunk()->set_offset(offset);
  response.mutable_chunk()->set_data(data);
  response.mutable_chunk()->set_crc32c(Crc32c(data));
  return response;
}

v1::ReadResponse SpoiltChunk(uint64_t offset, const std::string& data) {
  v1::ReadResponse response = Chunk(offset, data);
  response.mutable_chunk()->set_crc32c(Crc32c(data) + 1);
  return response;
}

v1::ReadResponse Missing(uint64_t offset, uint64_t length) {
  v1::ReadResponse response;
  response.mutable_missing()->set_offset(offset);
  response.mutable_missing()->set_length(length);
  return response;
}

v1::ReadResponse Summary(uint64_t bytes_read) {
  v1::ReadResponse response;
  response.mutable_summary()->set_bytes_read(bytes_read);
  return response;
}

// An aggregator that plays a script. One for each test. Thread-safe.
class ScriptedAggregator final : public v1::BlockService::Service {
 public:
  grpc::Status Read(grpc::ServerContext*, const v1::ReadRequest*,
                    grpc::ServerWriter<v1::ReadResponse>* writer) override {
    // Plays a copy of the script: the client may have given up, and the next script may replace this one while it is
    // being sent.
    ++reads;
    if (failures > 0) {
      --failures;
      return {failure.load(), "draining"};
    }
    const auto [parts, status] = Script();
    for (const v1::ReadResponse& part : parts) writer->Write(part);
    return status;
  }

  std::atomic<int> reads = 0;
  std::atomic<int> failures = 0;  // number of the next reads that fail
  std::atomic<grpc::StatusCode> failure = grpc::StatusCode::UNAVAILABLE;

  void Say(std::vector<v1::ReadResponse> parts, grpc::Status status = grpc::Status::OK) {
    absl::MutexLock lock(&mutex_);
    parts_ = std::move(parts);
    status_ = std::move(status);
  }

 private:
  std::pair<std::vector<v1::ReadResponse>, grpc::Status> Script() {
    absl::MutexLock lock(&mutex_);
    return {parts_, status_};
  }

  absl::Mutex mutex_;
  std::vector<v1::ReadResponse> parts_;
  grpc::Status status_;
};

class BlockClientTest : public ::testing::Test {
 protected:
  BlockClientTest() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&aggregator_);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
    client_ = std::make_unique<BlockClient>(address_);
  }

  ~BlockClientTest() override { server_->Shutdown(); }

  absl::Status Read(std::vector<v1::ReadResponse> script, absl::Duration timeout = absl::Seconds(30)) {
    aggregator_.Say(std::move(script), status_);
    data_.clear();
    const BlockClient::Sink sink{.on_header = [](const v1::ReadHeader&) { return absl::OkStatus(); },
                                 .on_data =
                                     [this](uint64_t, std::string_view data) {
                                       data_ += data;
                                       return sink_status_;
                                     },
                                 .on_missing = [](const v1::MissingRange&) { return absl::OkStatus(); }};
    return client_->Read({}, timeout, sink).status();
  }

  ScriptedAggregator aggregator_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::unique_ptr<BlockClient> client_;
  std::string data_;
  absl::Status sink_status_;
  grpc::Status status_;  // the aggregator's status at the end of its script
};

TEST_F(BlockClientTest, TakesASoundRead) {
  EXPECT_TRUE(Read({Header(10, 6), Chunk(10, "ab"), Missing(12, 2), Chunk(14, "cd"), Summary(4)}).ok());
  EXPECT_EQ(data_, "abcd");
  EXPECT_TRUE(Read({Header(0, 0, 0), Summary(0)}).ok()) << "an empty file";
}

TEST_F(BlockClientTest, WhatIsNotSoundIsDataLoss) {
  const std::vector<std::vector<v1::ReadResponse>> scripts = {
      {},
      {Chunk(0, "ab")},
      {Summary(0)},
      {v1::ReadResponse()},
      {Header(0, 2)},
      {Header(0, 2), Header(0, 2)},
      {Header(0, 2), v1::ReadResponse()},
      {Header(0, 2), Chunk(0, "ab")},
      {Header(0, 2), Chunk(0, "a"), Summary(1)},
      {Header(0, 2), Chunk(1, "b"), Summary(1)},
      {Header(0, 2), Chunk(0, "abc"), Summary(3)},
      {Header(0, 2), Chunk(0, "ab"), Chunk(0, "ab"), Summary(2)},
      {Header(0, 2), Chunk(0, "ab"), Summary(1)},
      {Header(0, 2), Chunk(0, "ab"), Summary(2), Summary(2)},
      {Header(0, 2), Missing(0, ~uint64_t{0}), Summary(0)},
      {Header(0, 2), SpoiltChunk(0, "ab"), Summary(2)},
      {Header(0, 2, 100, /*block_bytes=*/0), Chunk(0, "ab"), Summary(2)},
      {Header(0, 101), Missing(0, 101), Summary(0)},
      {Header(101, 0), Summary(0)},
      {Header(2, ~uint64_t{0}), Missing(2, ~uint64_t{0}), Summary(0)},
  };
  for (size_t i = 0; i < scripts.size(); ++i) {
    const absl::Status status = Read(scripts[i]);
    EXPECT_TRUE(absl::IsDataLoss(status)) << "script " << i << ": " << status;
  }
}

TEST_F(BlockClientTest, AnErrorOfTheSinkEndsTheReadWithIt) {
  sink_status_ = absl::OutOfRangeError("enough");
  EXPECT_EQ(Read({Header(0, 4), Chunk(0, "ab"), Chunk(2, "cd"), Summary(4)}), sink_status_);
  EXPECT_EQ(data_, "ab");
}

TEST_F(BlockClientTest, TheAggregatorsErrorIsTheReads) {
  status_ = grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "no such block");
  EXPECT_EQ(Read({Header(0, 2)}), absl::OutOfRangeError("no such block"));
}

TEST_F(BlockClientTest, AReadThatFindsNobodyIsMadeAgain) {
  aggregator_.failures = 4;
  EXPECT_TRUE(Read({Header(0, 2), Chunk(0, "ab"), Summary(2)}).ok());
  EXPECT_EQ(data_, "ab");
  EXPECT_EQ(aggregator_.reads, 5);
}

TEST_F(BlockClientTest, AReadThatAServerCancelsAsItShutsDownIsMadeAgain) {
  aggregator_.failure = grpc::StatusCode::CANCELLED;
  aggregator_.failures = 1;
  EXPECT_TRUE(Read({Header(0, 2), Chunk(0, "ab"), Summary(2)}).ok());
  EXPECT_EQ(aggregator_.reads, 2);
}

TEST_F(BlockClientTest, GivesUpInTheEnd) {
  aggregator_.failures = 100;
  EXPECT_EQ(Read({}), absl::UnavailableError("draining"));
  EXPECT_EQ(aggregator_.reads, 5);
}

TEST_F(BlockClientTest, AReadThatFindsNobodySaysWhy) {
  server_->Shutdown();
  const absl::Status status = Read({});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(status.message(), absl::StrCat("connect to ", address_, ": Connection refused"));
}

TEST_F(BlockClientTest, AReadOfWhichAPartHasComeIsNotMadeAgain) {
  status_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "a worker failed");
  EXPECT_EQ(Read({Header(0, 4), Chunk(0, "ab")}), absl::UnavailableError("a worker failed"));
  EXPECT_EQ(data_, "ab");
  EXPECT_EQ(aggregator_.reads, 1);
}

TEST_F(BlockClientTest, TimesWithoutEndAreTimes) {
  for (const absl::Duration timeout : {absl::InfiniteDuration(), absl::Hours(int64_t{1} << 40)}) {
    EXPECT_TRUE(Read({Header(0, 0), Summary(0)}, timeout).ok());
  }
}

}  // namespace
}  // namespace sluice
