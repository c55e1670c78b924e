#include "lib/storage/serving/block_server.h"

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/serving/rpc_server.h"
#include "lib/storage/stripe/crc32c.h"
#include "tests/unit/storage/blocks/test_cluster.h"

namespace sluice {
namespace {

using testing::Error;
using testing::Hang;
using ::testing::HasSubstr;
using testing::TestCluster;
using testing::TestWorker;

class BlockServerTest : public ::testing::Test {
 protected:
  void Start(TestCluster::Options options) {
    cluster_ = std::make_unique<TestCluster>(std::move(options));
    service_ = std::make_unique<BlockServer>(SourceOf(cluster_->reader()));
    auto server = RpcServer::Start({.listen = {"127.0.0.1:0"}}, {service_.get()});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::BlockService::NewStub(grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials()));
  }

  static constexpr uint64_t kReadBytes = uint64_t{2} * 65536;  // the memory of one read with StartWithMemory

  void StartWithMemory(uint64_t bytes, const std::vector<std::string>& listen) {
    Start({.file_bytes = 8 << 20,
           .sru_bytes = 16384,
           .schedule = {.budget_bytes = 1 << 20},
           .reader = {.segment_bytes = kReadBytes / 2}});
    server_.reset();
    service_ = std::make_unique<BlockServer>(SourceOf(cluster_->reader()), bytes);
    service_->SetSegmentBytes(kReadBytes / 2);
    auto server = RpcServer::Start({.listen = listen}, {service_.get()});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::BlockService::NewStub(grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials()));
  }

  static v1::ReadRequest Request(const std::string& file, std::optional<uint64_t> block = std::nullopt,
                                 bool allow_partial = false) {
    v1::ReadRequest request;
    request.set_file(file);
    if (block) request.set_block(*block);
    request.set_allow_partial(allow_partial);
    return request;
  }

  struct Answer {
    grpc::Status status;
    std::vector<v1::ReadResponse> parts;
    std::string data;
  };
  Answer Read(const v1::ReadRequest& request, std::optional<absl::Duration> timeout = std::nullopt) {
    grpc::ClientContext context;
    if (timeout) context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(*timeout));
    const auto reader = stub_->Read(&context, request);
    Answer answer;
    for (v1::ReadResponse response; reader->Read(&response);) {
      answer.data += response.chunk().data();
      answer.parts.push_back(response);
    }
    answer.status = reader->Finish();
    return answer;
  }

  std::unique_ptr<TestCluster> cluster_;
  std::unique_ptr<BlockServer> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::BlockService::Stub> stub_;
};

TEST_F(BlockServerTest, SendsAHeaderTheBytesWithTheirChecksumsAndASummary) {
  Start({});
  const Answer answer = Read(Request("data"));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_TRUE(answer.data == cluster_->source());
  ASSERT_TRUE(answer.parts.front().has_header());
  const v1::ReadHeader& header = answer.parts.front().header();
  EXPECT_EQ(header.file_bytes(), 100000u);
  EXPECT_EQ(header.length(), 100000u);
  EXPECT_EQ(header.offset(), 0u);
  EXPECT_EQ(header.block_bytes(), 16384u);
  EXPECT_EQ(header.sru_bytes(), 4096u);
  EXPECT_EQ(header.workers(), 4u);
  EXPECT_EQ(header.file_crc32c(), Crc32c(cluster_->source()));
  for (size_t i = 1; i + 1 < answer.parts.size(); ++i) {
    EXPECT_EQ(answer.parts[i].chunk().crc32c(), Crc32c(answer.parts[i].chunk().data()));
  }
  ASSERT_TRUE(answer.parts.back().has_summary());
  EXPECT_EQ(answer.parts.back().summary().bytes_read(), 100000u);
  EXPECT_EQ(answer.parts.back().summary().bytes_wanted(), 100000u);
}

TEST_F(BlockServerTest, BlockZeroIsABlockAndNoBlockIsTheFile) {
  Start({});
  EXPECT_TRUE(Read(Request("data", 0)).data == cluster_->SourceBlock(0));
  EXPECT_TRUE(Read(Request("data", 6)).data == cluster_->SourceBlock(6));
}

// W3C's Trace Context: the calls to the workers belong to the trace of the read.
TEST_F(BlockServerTest, WorkersReceiveTheTraceContext) {
  Start({});
  const std::string parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  grpc::ClientContext context;
  context.AddMetadata("traceparent", parent);
  context.AddMetadata("tracestate", "a=1");
  context.AddMetadata("x-other", "?");
  const auto reader = stub_->Read(&context, Request("data"));
  for (v1::ReadResponse response; reader->Read(&response);) continue;
  ASSERT_TRUE(reader->Finish().ok());
  size_t manifests = 0;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_THAT(cluster_->worker(i).seen(), ::testing::Not(::testing::IsEmpty()));
    for (const testing::Seen& seen : cluster_->worker(i).seen()) {
      if (seen.method == "/sluice.v1.SruService/ReadManifest") ++manifests;
      EXPECT_THAT(seen.metadata, ::testing::Contains(::testing::Pair("traceparent", parent))) << seen.method;
      EXPECT_THAT(seen.metadata, ::testing::Contains(::testing::Pair("tracestate", "a=1")));
      EXPECT_EQ(seen.metadata.count("x-other"), 0U);
    }
  }
  EXPECT_GE(manifests, 1U);
}

TEST_F(BlockServerTest, SaysWhatIsMissing) {
  Start({});
  cluster_->worker(1).SpoilSrus([](const auto&) { return Error(absl::StatusCode::kInternal); });
  const Answer answer = Read(Request("data", 1, /*allow_partial=*/true));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  int gaps = 0;
  for (const v1::ReadResponse& part : answer.parts) {
    if (!part.has_missing()) continue;
    ++gaps;
    EXPECT_EQ(part.missing().offset(), 16384u + 4096);
    EXPECT_EQ(part.missing().length(), 4096u);
    EXPECT_THAT(part.missing().reason(), HasSubstr("worker 1"));
  }
  EXPECT_EQ(gaps, 1);
  EXPECT_EQ(answer.parts.back().summary().bytes_read(), 3u * 4096);
  EXPECT_EQ(Read(Request("data", 1)).status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(BlockServerTest, PassesEveryStatusOn) {
  Start({.schedule = {.queue_limit = 8}});
  EXPECT_EQ(Read(Request("other")).status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Read(Request("data", 7)).status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(Read(Request("../data")).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Read(Request("")).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  cluster_->worker(0).SpoilSrus([](const auto&) { return testing::FlipByte(); });
  EXPECT_EQ(Read(Request("data", 0)).status.error_code(), grpc::StatusCode::DATA_LOSS);
  cluster_->worker(0).SpoilSrus([](const auto&) { return Error(absl::StatusCode::kCancelled); });
  EXPECT_EQ(Read(Request("data", 0)).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  cluster_->SpoilSrus(nullptr);
  EXPECT_TRUE(Read(Request("data", 0)).status.ok());
}

TEST_F(BlockServerTest, TheClientsDeadlineIsTheReads) {
  Start({});
  cluster_->SpoilSrus([](const auto&) { return Hang(); });
  EXPECT_EQ(Read(Request("data"), absl::Milliseconds(300)).status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(cluster_->AwaitIdle());
  cluster_->SpoilSrus(nullptr);
  EXPECT_TRUE(Read(Request("data"), absl::Seconds(60)).status.ok());
}

TEST_F(BlockServerTest, AClientThatGoesAwayCancelsItsSrus) {
  Start({});
  cluster_->SpoilSrus([](const auto&) { return Hang(); });
  {
    grpc::ClientContext context;
    const auto reader = stub_->Read(&context, Request("data"));
    v1::ReadResponse header;
    ASSERT_TRUE(reader->Read(&header));
    ASSERT_TRUE(cluster_->worker(0).Await([](const auto& counts) { return counts.open > 0; }));
    context.TryCancel();
    EXPECT_FALSE(reader->Finish().ok());
  }
  EXPECT_TRUE(cluster_->worker(0).Await([](const auto& counts) { return counts.open == 0; }));
  EXPECT_TRUE(cluster_->AwaitIdle());
}

TEST_F(BlockServerTest, AClientThatGoesAwayBeforeTheManifestCancelsThatToo) {
  Start({});
  TestWorker& asked = cluster_->manifest_worker();
  asked.SpoilManifests([](const auto&) { return Hang(); });
  grpc::ClientContext context;
  const auto reader = stub_->Read(&context, Request("data"));
  ASSERT_TRUE(asked.Await([](const auto& counts) { return counts.open == 1; }));
  context.TryCancel();
  EXPECT_FALSE(reader->Finish().ok());
  EXPECT_TRUE(asked.Await([](const auto& counts) { return counts.cancelled == 1; }));
  EXPECT_TRUE(cluster_->AwaitIdle());
}

// Parts that the client does not read are not requested, except the few megabytes that gRPC buffers.
TEST_F(BlockServerTest, ASlowClientHoldsOnlyItsOwnReadBack) {
  Start({.file_bytes = 8 << 20,
         .sru_bytes = 16384,
         .schedule = {.budget_bytes = 1 << 20},
         .reader = {.segment_bytes = 65536}});
  grpc::ClientContext context;
  const auto slow = stub_->Read(&context, Request("data"));
  v1::ReadResponse header;
  ASSERT_TRUE(slow->Read(&header));
  EXPECT_TRUE(Read(Request("data")).data == cluster_->source());
  ASSERT_TRUE(cluster_->AwaitIdle());
  EXPECT_LT(cluster_->Metric("sluice_goodput_bytes_total", "primary"), (24 << 20) + (12 << 20));
  std::string rest;
  for (v1::ReadResponse response; slow->Read(&response);) rest += response.chunk().data();
  EXPECT_TRUE(slow->Finish().ok());
  EXPECT_TRUE(rest == cluster_->source());
}

TEST_F(BlockServerTest, ReadsBeyondTheMemoryAreRefusedUntilOthersHaveEnded) {
  StartWithMemory(2 * kReadBytes + kReadBytes / 2, {"127.0.0.1:0"});
  grpc::ClientContext contexts[2];
  std::unique_ptr<grpc::ClientReader<v1::ReadResponse>> slow[2];
  v1::ReadResponse header;
  for (int i = 0; i < 2; ++i) {
    slow[i] = stub_->Read(&contexts[i], Request("data"));
    ASSERT_TRUE(slow[i]->Read(&header));
  }
  const Answer refused = Read(Request("data", 0));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(refused.parts.empty());
  contexts[0].TryCancel();
  EXPECT_FALSE(slow[0]->Finish().ok());
  EXPECT_TRUE(testing::Eventually([&] { return Read(Request("data", 0)).status.ok(); }));
  std::string rest;
  for (v1::ReadResponse response; slow[1]->Read(&response);) rest += response.chunk().data();
  EXPECT_TRUE(slow[1]->Finish().ok());
  EXPECT_TRUE(rest == cluster_->source());
  EXPECT_TRUE(cluster_->AwaitIdle());
}

TEST_F(BlockServerTest, AClientThatTakesAllItCanLeavesMemoryToOthers) {
  const testing::TemporaryFolder folder;
  StartWithMemory(10 * kReadBytes, {"127.0.0.1:0", absl::StrCat("unix:", folder.path().string(), "/blocks.sock")});
  grpc::ClientContext contexts[10];
  std::vector<std::unique_ptr<grpc::ClientReader<v1::ReadResponse>>> taken;
  v1::ReadResponse header;
  for (grpc::ClientContext& context : contexts) {
    taken.push_back(stub_->Read(&context, Request("data")));
    if (taken.back()->Read(&header)) continue;
    const grpc::Status refused = taken.back()->Finish();
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(refused.error_message(), ::testing::HasSubstr("to this client (127.0.0.1)"));
    taken.pop_back();
    break;
  }
  EXPECT_EQ(taken.size(), 8u);
  stub_ = v1::BlockService::NewStub(grpc::CreateChannel(server_->addresses()[1], grpc::InsecureChannelCredentials()));
  const Answer answer = Read(Request("data", 0));
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_TRUE(answer.data == cluster_->SourceBlock(0));
  for (size_t i = 0; i < taken.size(); ++i) {
    contexts[i].TryCancel();
    EXPECT_FALSE(taken[i]->Finish().ok());
  }
  EXPECT_TRUE(cluster_->AwaitIdle());
}

TEST_F(BlockServerTest, ManyClientsComeAndGo) {
  Start({.file_bytes = 300000});
  std::vector<std::thread> clients;
  for (int client = 0; client < 6; ++client) {
    clients.emplace_back([this, client] {
      for (int i = 0; i < 15; ++i) {
        grpc::ClientContext context;
        const auto reader = stub_->Read(&context, Request("data"));
        v1::ReadResponse response;
        for (int parts = 0; parts < (client + i) % 5 && reader->Read(&response); ++parts) {
        }
        context.TryCancel();
        (void)reader->Finish();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(cluster_->AwaitIdle());
  EXPECT_TRUE(Read(Request("data")).data == cluster_->source());
}

TEST_F(BlockServerTest, ADrainCancelsReadsThatDoNotEnd) {
  cluster_ = std::make_unique<TestCluster>(TestCluster::Options{});
  service_ = std::make_unique<BlockServer>(SourceOf(cluster_->reader()));
  auto server =
      RpcServer::Start({.listen = {"127.0.0.1:0"}, .drain_timeout = absl::Milliseconds(200)}, {service_.get()});
  ASSERT_TRUE(server.ok());
  stub_ = v1::BlockService::NewStub(grpc::CreateChannel((*server)->addresses()[0], grpc::InsecureChannelCredentials()));
  cluster_->SpoilSrus([](const auto&) { return Hang(); });
  Answer answer;
  std::thread client([&] { answer = Read(Request("data")); });
  ASSERT_TRUE(cluster_->worker(0).Await([](const auto& counts) { return counts.open > 0; }));
  (*server)->Drain();
  client.join();
  EXPECT_FALSE(answer.status.ok());
  EXPECT_TRUE(cluster_->AwaitIdle());
}

TEST_F(BlockServerTest, WithoutAReaderReadsAreUnavailableAndWithAnotherOneTheyGoOn) {
  Start({});
  server_.reset();
  absl::Mutex mutex;
  std::shared_ptr<BlockReader> reader;
  service_ = std::make_unique<BlockServer>([&] {
    absl::MutexLock lock(&mutex);
    return reader;
  });
  auto server = RpcServer::Start({.listen = {"127.0.0.1:0"}}, {service_.get()});
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  stub_ = v1::BlockService::NewStub(grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials()));
  const Answer refused = Read(Request("data"));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("no worker is known yet"));
  {
    absl::MutexLock lock(&mutex);
    reader = *cluster_->reader().Successor(cluster_->reader_options());
  }
  EXPECT_TRUE(Read(Request("data")).data == cluster_->source());
  server_.reset();
}

}  // namespace
}  // namespace sluice
