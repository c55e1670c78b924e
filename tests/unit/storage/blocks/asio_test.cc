#include "sluice/asio.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include "gtest/gtest.h"
#include "tests/unit/storage/blocks/test_cluster.h"

namespace sluice {
namespace {

using testing::Hang;
using testing::HasCode;
using testing::kPatience;
using testing::TestCluster;

constexpr uint32_t kBytes = 1000;

class AsyncCallTest : public ::testing::Test {
 protected:
  AsyncCallTest() : cluster_({.workers = 4, .file_bytes = 100000}) {
    std::vector<std::string> workers;
    for (size_t i = 0; i < cluster_.size(); ++i) workers.push_back(cluster_.worker(i).address());
    fan_out_ = *FanOut::Create(cluster_.shared_link(), {.workers = workers});
  }

  static std::optional<Ask<v1::ReadSruRequest>> Map(size_t worker) {
    v1::ReadSruRequest request;
    request.set_file("data");
    request.set_worker(static_cast<uint32_t>(worker));
    request.set_length(kBytes);
    return request;
  }

  // Starts a fan-out to all workers.
  template <class Token>
  auto Start(Token&& token, absl::Duration timeout = kPatience, std::shared_ptr<FanOutCall>* call = nullptr) {
    const auto merge = [this](size_t, const v1::ReadSruResponse& response) {
      merged_bytes_ += response.data().size();
      return absl::OkStatus();
    };
    return AsyncCall(*fan_out_, method_, &AsyncCallTest::Map, merge, {.timeout = timeout}, std::forward<Token>(token),
                     call);
  }

  // Returns a move-only handler that runs on the context.
  auto Handler() {
    return boost::asio::bind_executor(io_.get_executor(),
                                      [this, movable = std::make_unique<int>(0)](FanOutResult result) {
                                        handler_thread_ = std::this_thread::get_id();
                                        result_ = std::move(result);
                                      });
  }

  // Runs the context, which has no more work once the handler has run.
  void RunUntilHandled() {
    io_.run_for(absl::ToChronoMilliseconds(kPatience));
    ASSERT_TRUE(result_.has_value());
  }

  const Method<v1::ReadSruRequest, v1::ReadSruResponse> method_{"/sluice.v1.SruService/ReadSru"};
  boost::asio::io_context io_;  // outlives the threads that post to it
  TestCluster cluster_;
  std::unique_ptr<FanOut> fan_out_;
  std::atomic<size_t> merged_bytes_ = 0;
  std::thread::id handler_thread_;
  std::optional<FanOutResult> result_;
};

TEST_F(AsyncCallTest, AHandlerRunsOnItsOwnExecutor) {
  Start(Handler());
  RunUntilHandled();
  EXPECT_EQ(handler_thread_, std::this_thread::get_id());
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  EXPECT_EQ(result_->answered, 4u);
  EXPECT_EQ(merged_bytes_, 4 * kBytes);
}

TEST_F(AsyncCallTest, AnErrorAtTheStartReachesTheHandlerAndNotBeforeItsExecutorRuns) {
  Start(Handler(), absl::ZeroDuration());
  EXPECT_FALSE(result_.has_value());
  RunUntilHandled();
  EXPECT_THAT(result_->status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(cluster_.Requests(), 0);
}

TEST_F(AsyncCallTest, TheContextHasWorkWhileTheCallIsUnderWay) {
  cluster_.SpoilSrus([](const auto&) { return Hang(); });
  std::shared_ptr<FanOutCall> call;
  Start(Handler(), kPatience, &call);
  ASSERT_TRUE(cluster_.worker(0).Await([](const auto& counts) { return counts.open == 1; }));
  io_.poll();
  EXPECT_FALSE(io_.stopped());
  EXPECT_FALSE(result_.has_value());
  call->Cancel();
  RunUntilHandled();
  EXPECT_TRUE(io_.stopped());
}

TEST_F(AsyncCallTest, CancelEndsTheCall) {
  cluster_.SpoilSrus([](const auto&) { return Hang(); });
  std::shared_ptr<FanOutCall> call;
  Start(Handler(), kPatience, &call);
  ASSERT_TRUE(cluster_.worker(0).Await([](const auto& counts) { return counts.open == 1; }));
  call->Cancel();
  RunUntilHandled();
  EXPECT_THAT(result_->status, HasCode(absl::StatusCode::kCancelled));
  EXPECT_TRUE(cluster_.worker(0).Await([](const auto& counts) { return counts.cancelled == 1; }));
}

TEST_F(AsyncCallTest, AFanOutThatGoesCancelsTheCall) {
  cluster_.SpoilSrus([](const auto&) { return Hang(); });
  Start(Handler());
  ASSERT_TRUE(cluster_.worker(0).Await([](const auto& counts) { return counts.open == 1; }));
  fan_out_.reset();
  RunUntilHandled();
  EXPECT_THAT(result_->status, HasCode(absl::StatusCode::kCancelled));
}

TEST_F(AsyncCallTest, GivesAFuture) {
  std::future<FanOutResult> future = Start(boost::asio::use_future);
  ASSERT_EQ(future.wait_for(absl::ToChronoMilliseconds(kPatience)), std::future_status::ready);
  EXPECT_TRUE(future.get().status.ok());
  EXPECT_EQ(merged_bytes_, 4 * kBytes);
}

#if defined(BOOST_ASIO_HAS_CO_AWAIT)  // Boost 1.74 cannot use the coroutines of Clang 14

TEST_F(AsyncCallTest, ACoroutineAwaitsItAndGoesOnWhereItWas) {
  const auto twice = [this]() -> boost::asio::awaitable<size_t> {
    const FanOutResult first = co_await Start(boost::asio::use_awaitable);
    EXPECT_EQ(std::this_thread::get_id(), handler_thread_);
    const FanOutResult second = co_await Start(boost::asio::use_awaitable);
    EXPECT_EQ(std::this_thread::get_id(), handler_thread_);
    co_return first.answered + second.answered;
  };
  handler_thread_ = std::this_thread::get_id();
  std::future<size_t> answered = boost::asio::co_spawn(io_, twice, boost::asio::use_future);
  EXPECT_EQ(cluster_.Requests(), 0) << "nothing is asked before the context runs";
  io_.run_for(absl::ToChronoMilliseconds(kPatience));
  ASSERT_EQ(answered.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_EQ(answered.get(), 8u);
}

TEST_F(AsyncCallTest, ACoroutineThatWaitsCanBeCancelled) {
  cluster_.SpoilSrus([](const auto&) { return Hang(); });
  std::shared_ptr<FanOutCall> call;
  const auto wait = [&]() -> boost::asio::awaitable<absl::Status> {
    co_return (co_await Start(boost::asio::use_awaitable, kPatience, &call)).status;
  };
  std::future<absl::Status> status = boost::asio::co_spawn(io_, wait, boost::asio::use_future);
  while (call == nullptr && io_.run_one() > 0) {
  }
  ASSERT_TRUE(cluster_.worker(0).Await([](const auto& counts) { return counts.open == 1; }));
  call->Cancel();
  io_.run_for(absl::ToChronoMilliseconds(kPatience));
  ASSERT_EQ(status.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_THAT(status.get(), HasCode(absl::StatusCode::kCancelled));
}

#endif

}  // namespace
}  // namespace sluice
