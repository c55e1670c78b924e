#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"
#include "tests/link/link_core_fixture.h"
#include "tests/link/test_http2_connection.h"
#include "tests/link/test_http2_server.h"

// Calls that nobody needs any more, and of which only so many may be reset.
namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::CallRecord;
using testing::HasCode;
using testing::LinkCoreTest;
using testing::TestHttp2Server;

// A burst of a hundred, and five a second since then.
int AllowedResets(std::chrono::steady_clock::time_point since) {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - since;
  return 100 + static_cast<int>(5 * elapsed.count()) + 1;
}

// A link with room for all calls, and a server that never answers by itself.
class LinkCoreResetTest : public LinkCoreTest {
 protected:
  // The tags of calls whose requests the server has.
  std::vector<size_t> AskAll(int calls, const CallOptions& options = CallOptions()) {
    StartLink(Ample());
    Connect(server_.address());
    began_ = std::chrono::steady_clock::now();
    const std::vector<size_t> tags =
        Ask(std::vector<std::string>(static_cast<size_t>(calls), server_.address()), options);
    EXPECT_TRUE(server_.AwaitRequests(calls));
    return tags;
  }

  TestHttp2Server server_{[](auto&) {}};
  std::chrono::steady_clock::time_point began_;  // before the first request
};

// Servers take more for an attack (CVE-2023-44487): what is not reset is let in, and dropped.
TEST_F(LinkCoreResetTest, ManyCancelledCallsAreNotAllReset) {
  constexpr int kCalls = 300;
  const std::vector<size_t> tags = AskAll(kCalls);
  for (size_t tag : tags) Cancel(tag);
  for (size_t tag : tags) EXPECT_EQ(AwaitEnd(tag).status, absl::CancelledError("not needed"));
  server_.Run([&] {
    for (const auto& call : server_.calls()) {
      if (!call->closed()) call->Answer(std::string(5000, 'x'));
    }
  });
  EXPECT_TRUE(AwaitIdle());
  const size_t last = AskOne(server_.address());
  ASSERT_TRUE(server_.AwaitRequests(kCalls + 1)) << "behind all that was reset";
  Cancel(last);
  EXPECT_GE(server_.counts().resets, 100);
  EXPECT_LE(server_.counts().resets, AllowedResets(began_));
  EXPECT_EQ(server_.counts().connections, 1);
}

TEST_F(LinkCoreResetTest, ACallWhoseRequestHasNotLeftNeedsNoReset) {
  StartLink(Ample());
  Connect(server_.address());
  std::vector<size_t> tags;
  executor_.Await([&] {
    tags = AskHere(std::vector<std::string>(300, server_.address()), CallOptions());
    for (const size_t tag : tags) CancelHere(tag);
  });
  for (const size_t tag : tags) EXPECT_EQ(AwaitEnd(tag).status, absl::CancelledError("not needed"));
  EXPECT_TRUE(AwaitIdle());
  EXPECT_EQ(server_.counts().requests, 0);
  EXPECT_EQ(server_.counts().resets, 0);
}

// A call whose worker never answers holds its place in the schedule, and its share of the budget, until its reset.
TEST_F(LinkCoreResetTest, CancelledCallsThatMustNotBeResetAreResetLater) {
  constexpr int kCalls = 103;
  const std::vector<size_t> tags = AskAll(kCalls);
  for (size_t tag : tags) Cancel(tag);
  for (size_t tag : tags) EXPECT_EQ(AwaitEnd(tag).status, absl::CancelledError("not needed"));
  EXPECT_TRUE(AwaitIdle());
  const size_t last = AskOne(server_.address());
  ASSERT_TRUE(server_.AwaitRequests(kCalls + 1)) << "behind all that was reset";
  EXPECT_EQ(server_.counts().resets, kCalls);
  EXPECT_LE(server_.counts().resets, AllowedResets(began_));
  EXPECT_EQ(server_.counts().connections, 1);
  Cancel(last);
}

TEST_F(LinkCoreResetTest, ACallThatWaitsForItsResetMayEndBefore) {
  constexpr int kCalls = 105;
  const std::vector<size_t> tags = AskAll(kCalls);
  executor_.Await([&] {
    for (size_t tag : tags) CancelHere(tag);
  });
  // The worker is gone before the allowance permits the next reset.
  server_.Run([&] { server_.calls().front()->connection().Break(); });
  EXPECT_TRUE(AwaitIdle());
  executor_.Await([&] { workers_.clear(); });
}

TEST_F(LinkCoreResetTest, ManyCallsWhoseDeadlinePassesAreNotAllReset) {
  constexpr int kCalls = 300;
  const std::vector<size_t> tags = AskAll(kCalls, {.response_bytes = 100'000, .timeout = milliseconds(700)});
  for (const size_t tag : tags) EXPECT_THAT(AwaitEnd(tag).status, HasCode(absl::StatusCode::kDeadlineExceeded));
  server_.Run([&] {
    for (const auto& call : server_.calls()) {
      if (!call->closed()) call->Fail(absl::DeadlineExceededError("the server knows it, too"));
    }
  });
  EXPECT_TRUE(AwaitIdle());
  const size_t last = AskOne(server_.address());
  ASSERT_TRUE(server_.AwaitRequests(kCalls + 1)) << "behind all that was reset";
  Cancel(last);
  EXPECT_LE(server_.counts().resets, AllowedResets(began_));
  EXPECT_EQ(server_.counts().connections, 1);
}

}  // namespace
}  // namespace sluice
