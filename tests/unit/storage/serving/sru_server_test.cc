#include "lib/storage/serving/sru_server.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/io_thread.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/tcp/socket_diag.h"
#include "prometheus/registry.h"
#include "tests/unit/storage/serving/silent_client.h"
#include "tests/unit/storage/serving/sru_read.h"
#include "tests/unit/storage/serving/sru_request.h"
#include "tests/unit/storage/serving/sru_server_fixture.h"
#include "tests/unit/storage/stripe/striped_folder.h"
#include "tests/wait_until.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::kPatience;
using testing::SilentClient;
using testing::SruServerTest;

TEST_F(SruServerTest, AnswersWithExactlyTheRange) {
  Start();
  const grpc::Status status = Read(SruRequest("data", 1, 10, 10));
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response_.data(), source_.substr(40, 10));
  ExpectCounter("sluice_worker_sru_requests_total", "ok", 1);
  ExpectCounter("sluice_worker_sent_bytes_total", "", 10);
}

TEST_F(SruServerTest, RefusesWithTheDocumentedStatus) {
  Start();
  using grpc::StatusCode;
  const std::pair<v1::ReadSruRequest, StatusCode> cases[] = {
      {SruRequest("other", 0, 0, 10), StatusCode::NOT_FOUND},
      {SruRequest("data", 3, 0, 10), StatusCode::NOT_FOUND},
      {SruRequest("data", 0, 30, 10), StatusCode::OUT_OF_RANGE},
      {SruRequest("data", 0, std::numeric_limits<uint64_t>::max(), 10), StatusCode::OUT_OF_RANGE},
      {SruRequest("data", 0, 0, 0), StatusCode::INVALID_ARGUMENT},
      {SruRequest("data", 0, 0, kMaxSruBytes + 1), StatusCode::INVALID_ARGUMENT},
      {SruRequest("data", 0, 0, std::numeric_limits<uint32_t>::max()), StatusCode::INVALID_ARGUMENT},
      {SruRequest("../data", 0, 0, 10), StatusCode::INVALID_ARGUMENT},
      {SruRequest("", 0, 0, 10), StatusCode::INVALID_ARGUMENT},
  };
  for (const auto& [request, code] : cases) {
    const grpc::Status status = Read(request);
    EXPECT_EQ(status.error_code(), code) << request.ShortDebugString();
    EXPECT_FALSE(status.error_message().empty());
  }
  ExpectCounter("sluice_worker_sru_requests_total", "not_found", 2);
  ExpectCounter("sluice_worker_sru_requests_total", "out_of_range", 2);
  ExpectCounter("sluice_worker_sru_requests_total", "invalid", 5);
  EXPECT_EQ(Counter("sluice_worker_sent_bytes_total", ""), 0);
}

TEST_F(SruServerTest, AnswersTheLargestRangeToAnOrdinaryClient) {
  Start();
  const std::string large = StripeLarge(kMaxSruBytes);
  const grpc::Status status = Read(SruRequest("large", 0, 0, kMaxSruBytes));
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(response_.data() == large);
}

TEST_F(SruServerTest, ARangeComesInMessagesOf64KiB) {
  Start();
  const std::string large = StripeLarge(3 * kSruMessageBytes + 100);
  const auto sizes = [&](uint64_t offset, uint32_t length) {
    grpc::ClientContext context;
    const auto reader = stub_->ReadSru(&context, SruRequest("large", 0, offset, length));
    std::vector<size_t> bytes;
    std::string data;
    for (v1::ReadSruResponse next; reader->Read(&next);) {
      bytes.push_back(next.data().size());
      data += next.data();
    }
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_TRUE(data == large.substr(offset, length));
    return bytes;
  };
  EXPECT_THAT(sizes(0, kSruMessageBytes), ElementsAre(kSruMessageBytes));
  EXPECT_THAT(sizes(7, kSruMessageBytes + 1), ElementsAre(kSruMessageBytes, 1));
  EXPECT_THAT(sizes(100, 3 * kSruMessageBytes), ElementsAre(kSruMessageBytes, kSruMessageBytes, kSruMessageBytes));
  EXPECT_THAT(sizes(50, 3 * kSruMessageBytes + 50),
              ElementsAre(kSruMessageBytes, kSruMessageBytes, kSruMessageBytes, 50));
  ExpectCounter("sluice_worker_sent_bytes_total", "", 8.0 * kSruMessageBytes + 51);
}

TEST_F(SruServerTest, NothingIsSentOfARangeThatTheStripeEndsBefore) {
  Start();
  StripeLarge(3 * kSruMessageBytes);
  EXPECT_EQ(Read(SruRequest("large", 0, 1, 3 * kSruMessageBytes)).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(response_.data(), "");
  EXPECT_EQ(ReadsStarted(), 0u);
}

TEST_F(SruServerTest, ASlowClientHoldsTwoPiecesAtMost) {
  Start();
  constexpr uint32_t kPieces = 20;
  const std::string large = StripeLarge(kPieces * kSruMessageBytes);
  const auto slow = SlowStub();
  grpc::ClientContext context;
  const auto reader = slow->ReadSru(&context, SruRequest("large", 0, 0, kPieces * kSruMessageBytes));
  std::string data;
  for (uint32_t taken = 0; taken < kPieces; ++taken) {
    const uint64_t before = ReadsStarted();
    ASSERT_LE(before, 2 * taken + 2);  // including the reads of the other client
    v1::ReadSruResponse next;
    ASSERT_TRUE(reader->Read(&next));
    data += next.data();
    ASSERT_TRUE(Read(SruRequest("large", 0, 0, 10)).ok());  // another client is served at the same time
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(data == large);
}

TEST_F(SruServerTest, ASlowClientCostsAPieceAndNotItsSru) {
  Start({.max_answer_bytes = 2 * kSruMessageBytes + kSruMessageBytes / 2});
  StripeLarge(20 * kSruMessageBytes);
  const v1::ReadSruRequest request = SruRequest("large", 0, 0, 20 * kSruMessageBytes);
  const auto slow = SlowStub();
  grpc::ClientContext contexts[2];
  const auto first = slow->ReadSru(&contexts[0], request);
  const auto second = slow->ReadSru(&contexts[1], request);
  ExpectReadsStarted(2);
  EXPECT_EQ(Read(SruRequest("data", 0, 0, 10)).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  EXPECT_FALSE(first->Finish().ok());
  EXPECT_FALSE(second->Finish().ok());
  ExpectCounter("sluice_worker_sru_requests_total", "cancelled", 2);
  EXPECT_TRUE(Read(SruRequest("data", 0, 0, 10)).ok());
}

// As many calls as the memory holds for one client, which takes nothing.
TEST_F(SruServerTest, ClientsThatTakeNothingDoNotRefuseOthersForEver) {
  constexpr int kCalls = 64;
  Start({.max_answer_bytes = kCalls * kSruMessageBytes * 5 / 4, .stall_timeout = std::chrono::nanoseconds(0)});
  StripeLarge(20 * kSruMessageBytes);
  const auto slow = SlowStub();
  grpc::ClientContext contexts[kCalls];
  std::vector<std::unique_ptr<grpc::ClientReader<v1::ReadSruResponse>>> readers;
  for (grpc::ClientContext& context : contexts) {
    readers.push_back(slow->ReadSru(&context, SruRequest("large", 0, 0, 20 * kSruMessageBytes)));
  }
  ExpectReadsStarted(kCalls);
  EXPECT_TRUE(testing::Eventually([&] { return Read(SruRequest("data", 0, 0, 10)).ok(); }));
  ExpectCounter("sluice_worker_sru_requests_total", "cancelled", kCalls);
  for (const auto& reader : readers) {
    v1::ReadSruResponse next;
    while (reader->Read(&next)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST_F(SruServerTest, AClientThatTakesNoManifestDoesNotRefuseOthersForEver) {
  Start({.max_answer_bytes = 50, .stall_timeout = std::chrono::nanoseconds(0)});
  v1::ReadManifestRequest request;
  request.set_file("data");
  request.set_length(50);
  const SilentClient slow(absl::StrCat("127.0.0.1:", port_));
  slow.Call("/sluice.v1.SruService/ReadManifest", request, /*window_bytes=*/0);
  EXPECT_TRUE(testing::Eventually([&] { return !ReadManifestStatus(50).ok(); }));
  EXPECT_TRUE(testing::Eventually([&] { return ReadManifestStatus(50).ok(); }));
  ExpectCounter("sluice_worker_manifest_requests_total", "cancelled", 1);
}

TEST_F(SruServerTest, AClientMayGoInTheMiddle) {
  Start();
  StripeLarge(20 * kSruMessageBytes);
  const auto slow = SlowStub();
  grpc::ClientContext context;
  const auto reader = slow->ReadSru(&context, SruRequest("large", 0, 0, 20 * kSruMessageBytes));
  v1::ReadSruResponse next;
  ASSERT_TRUE(reader->Read(&next));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  ExpectCounter("sluice_worker_sru_requests_total", "cancelled", 1);
  EXPECT_LE(ReadsStarted(), 3u);
  EXPECT_LE(Counter("sluice_worker_sent_bytes_total", ""), 2.0 * kSruMessageBytes);
}

TEST_F(SruServerTest, AnErrorInTheMiddleEndsTheStream) {
  Start();
  const std::string large = StripeLarge(20 * kSruMessageBytes);
  const auto slow = SlowStub();
  grpc::ClientContext context;
  const auto reader = slow->ReadSru(&context, SruRequest("large", 0, 0, 20 * kSruMessageBytes));
  v1::ReadSruResponse next;
  ASSERT_TRUE(reader->Read(&next));
  std::filesystem::resize_file(folder_.path() / "worker-0000/large/stripe-0", 10 * kSruMessageBytes);
  std::string data = next.data();
  while (reader->Read(&next)) data += next.data();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_TRUE(data == large.substr(0, 10 * kSruMessageBytes));
  ExpectCounter("sluice_worker_sru_requests_total", "out_of_range", 1);
  ExpectCounter("sluice_worker_sent_bytes_total", "", 10.0 * kSruMessageBytes);
}

TEST_F(SruServerTest, AnswersWithTheManifestInParts) {
  Start();
  const std::string stored = testing::ReadFile(folder_.path() / "worker-0002/data/manifest");
  v1::ReadManifestRequest request;
  request.set_file("data");
  request.set_worker(2);
  request.set_length(40);
  std::string joined;
  while (joined.size() < stored.size()) {
    request.set_offset(joined.size());
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    v1::ReadManifestResponse response;
    ASSERT_TRUE(stub_->ReadManifest(&context, request, &response).ok());
    EXPECT_EQ(response.total_bytes(), stored.size());
    ASSERT_FALSE(response.data().empty());
    joined += response.data();
  }
  EXPECT_EQ(joined, stored);
  request.set_file("other");
  grpc::ClientContext context;
  v1::ReadManifestResponse response;
  EXPECT_EQ(stub_->ReadManifest(&context, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  ExpectCounter("sluice_worker_manifest_requests_total", "not_found", 1);
}

TEST_F(SruServerTest, ThinksForAsLongAsItIsTold) {
  Start({.think_time = {.usual = absl::Milliseconds(50)}});
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(Read(SruRequest("data", 0, 0, 10)).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
  EXPECT_EQ(response_.data(), source_.substr(0, 10));
}

TEST_F(SruServerTest, ThinksLongerAboutAnswersInTheTail) {
  Start({.think_time = {.usual = absl::Hours(1), .tail = absl::Milliseconds(50), .tail_share = 1}});
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(Read(SruRequest("data", 0, 0, 10)).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
}

// Loopback loses nothing, so the test reports losses of the connection itself.
TEST_F(SruServerTest, TellsItsClientWhatTcpRepeatedOnTheirConnectionOnce) {
  Start();
  const auto trailer = [this]() -> std::string {
    grpc::ClientContext context;
    EXPECT_TRUE(ReadSru(*stub_, context, SruRequest("data", 1, 10, 10), response_).ok());
    const auto& trailers = context.GetServerTrailingMetadata();
    const auto found = trailers.find("sluice-tcp");
    return found == trailers.end() ? "" : std::string(found->second.data(), found->second.size());
  };
  EXPECT_EQ(trailer(), "");
  auto diag = SocketDiag::Open();
  if (!diag.ok()) GTEST_SKIP() << diag.status();
  auto sockets = diag->OwnConnections();
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  ASSERT_EQ(sockets->size(), 2u) << "both ends are in this process";
  const bool first_is_client = absl::StrCat((*sockets)[0].remote.port()) == port_;
  const TcpSocket& client = (*sockets)[first_is_client ? 0 : 1];
  // On a busy machine, TCP itself repeats a packet now and then.
  for (TcpSocket& socket : *sockets) socket.info.retransmitted_packets = 0;
  reports_.Update(*sockets);
  EXPECT_EQ(trailer(), "");
  for (TcpSocket& socket : *sockets) socket.info.retransmitted_packets = 7;
  for (TcpSocket& socket : *sockets) socket.info.rtos = 1;
  reports_.Update(*sockets);
  EXPECT_EQ(trailer(), absl::StrCat(client.local.port(), " 7 1"));
  EXPECT_EQ(trailer(), "");
}

// More calls than gRPC has threads: one after the other they would take 50 seconds.
TEST_F(SruServerTest, ThinksAboutManyCallsAtOnce) {
  Start({.think_time = {.usual = absl::Milliseconds(100)}});
  constexpr int kCalls = 500;
  absl::Notification done;
  std::atomic<int> left = kCalls;
  std::atomic<int> ok = 0;
  std::vector<std::unique_ptr<AsyncSruRead>> reads;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) {
    reads.push_back(Begin(SruRequest("data", 0, 0, 10), [&](const grpc::Status& status) {
      ok += status.ok();
      if (--left == 0) done.Notify();
    }));
  }
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(ok, kCalls);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_F(SruServerTest, ACallThatItsClientGivesUpEndsAtOnce) {
  Start({.think_time = {.usual = absl::Hours(1)}});
  EXPECT_EQ(Read(SruRequest("data", 0, 0, 10), absl::Milliseconds(50)).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  ExpectCounter("sluice_worker_sru_requests_total", "cancelled", 1);
  EXPECT_EQ(Counter("sluice_worker_sent_bytes_total", ""), 0);
}

TEST_F(SruServerTest, AShutdownEndsCallsThatThink) {
  Start({.think_time = {.usual = absl::Hours(1)}});
  absl::Notification done;
  const auto read = Begin(SruRequest("data", 0, 0, 10), [&](const grpc::Status& status) {
    EXPECT_FALSE(status.ok());
    done.Notify();
  });
  ExpectReadsStarted(1);
  server_->Shutdown(std::chrono::system_clock::now());
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  ExpectCounter("sluice_worker_sru_requests_total", "cancelled", 1);
}

TEST_F(SruServerTest, RefusesAnswersBeyondItsMemoryAndTakesThemAgainLater) {
  Start({.think_time = {.usual = absl::Hours(1)}, .max_answer_bytes = 30});
  const v1::ReadSruRequest request = SruRequest("data", 0, 0, 10);
  std::atomic<int> left = 2;
  absl::Notification done;
  std::vector<std::unique_ptr<AsyncSruRead>> reads;
  for (int i = 0; i < 2; ++i) {
    reads.push_back(Begin(request, [&](const grpc::Status&) {
      if (--left == 0) done.Notify();
    }));
  }
  ExpectReadsStarted(2);
  EXPECT_EQ(Read(request).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReadManifestStatus(10).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(ReadManifestStatus(2).ok());
  // Its memory is released a moment after its response.
  ExpectCounter("sluice_worker_manifest_requests_total", "ok", 1);
  for (const auto& read : reads) read->context().TryCancel();
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  ExpectCounter("sluice_worker_sru_requests_total", "cancelled", 2);
  EXPECT_TRUE(ReadManifestStatus(30).ok());
}

}  // namespace
}  // namespace sluice
