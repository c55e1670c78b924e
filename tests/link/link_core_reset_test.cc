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

// Servers take more for an attack (CVE-2023-44487): what is not reset is let in, and dropped.
TEST_F(LinkCoreTest, ManyCancelledCallsAreNotAllReset) {
  constexpr int kCalls = 300;
  StartLink(Ample());
  TestHttp2Server server([](auto&) {});
  Connect(server.address());
  const auto began = std::chrono::steady_clock::now();
  const std::vector<size_t> tags = Ask(std::vector<std::string>(kCalls, server.address()));
  ASSERT_TRUE(server.AwaitRequests(kCalls));
  for (size_t tag : tags) Cancel(tag);
  for (size_t tag : tags) EXPECT_EQ(AwaitEnd(tag).status, absl::CancelledError("not needed"));
  server.Run([&] {
    for (const auto& call : server.calls()) {
      if (!call->closed()) call->Answer(std::string(5000, 'x'));
    }
  });
  EXPECT_TRUE(AwaitIdle());
  const size_t last = AskOne(server.address());
  ASSERT_TRUE(server.AwaitRequests(kCalls + 1)) << "behind all that was reset";
  Cancel(last);
  EXPECT_GE(server.counts().resets, 100);
  EXPECT_LE(server.counts().resets, AllowedResets(began));
  EXPECT_EQ(server.counts().connections, 1);
}

// A call whose worker never answers holds its place in the schedule, and its share of the budget, until its reset.
TEST_F(LinkCoreTest, CancelledCallsThatMustNotBeResetAreResetLater) {
  constexpr int kCalls = 103;
  StartLink(Ample());
  TestHttp2Server server([](auto&) {});
  Connect(server.address());
  const auto began = std::chrono::steady_clock::now();
  const std::vector<size_t> tags = Ask(std::vector<std::string>(kCalls, server.address()));
  ASSERT_TRUE(server.AwaitRequests(kCalls));
  for (size_t tag : tags) Cancel(tag);
  for (size_t tag : tags) EXPECT_EQ(AwaitEnd(tag).status, absl::CancelledError("not needed"));
  EXPECT_TRUE(AwaitIdle());
  const size_t last = AskOne(server.address());
  ASSERT_TRUE(server.AwaitRequests(kCalls + 1)) << "behind all that was reset";
  EXPECT_EQ(server.counts().resets, kCalls);
  EXPECT_LE(server.counts().resets, AllowedResets(began));
  EXPECT_EQ(server.counts().connections, 1);
  Cancel(last);
}

TEST_F(LinkCoreTest, ACallThatWaitsForItsResetMayEndBefore) {
  constexpr int kCalls = 105;
  StartLink(Ample());
  TestHttp2Server server([](auto&) {});
  Connect(server.address());
  const std::vector<size_t> tags = Ask(std::vector<std::string>(kCalls, server.address()));
  ASSERT_TRUE(server.AwaitRequests(kCalls));
  executor_.Await([&] {
    for (size_t tag : tags) CancelHere(tag);
  });
  // The worker is gone before the allowance permits the next reset.
  server.Run([&] { server.calls().front()->connection().Break(); });
  EXPECT_TRUE(AwaitIdle());
  executor_.Await([&] { workers_.clear(); });
}

TEST_F(LinkCoreTest, ManyCallsWhoseDeadlinePassesAreNotAllReset) {
  constexpr int kCalls = 300;
  StartLink(Ample());
  TestHttp2Server server([](auto&) {});
  Connect(server.address());
  const auto began = std::chrono::steady_clock::now();
  const std::vector<size_t> tags = Ask(std::vector<std::string>(kCalls, server.address()),
                                       {.response_bytes = 100'000, .timeout = milliseconds(700)});
  ASSERT_TRUE(server.AwaitRequests(kCalls));
  for (const size_t tag : tags) EXPECT_THAT(AwaitEnd(tag).status, HasCode(absl::StatusCode::kDeadlineExceeded));
  server.Run([&] {
    for (const auto& call : server.calls()) {
      if (!call->closed()) call->Fail(absl::DeadlineExceededError("the server knows it, too"));
    }
  });
  EXPECT_TRUE(AwaitIdle());
  const size_t last = AskOne(server.address());
  ASSERT_TRUE(server.AwaitRequests(kCalls + 1)) << "behind all that was reset";
  Cancel(last);
  EXPECT_LE(server.counts().resets, AllowedResets(began));
  EXPECT_EQ(server.counts().connections, 1);
}

}  // namespace
}  // namespace sluice
