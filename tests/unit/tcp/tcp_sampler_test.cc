#include "lib/tcp/tcp_sampler.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "lib/net/io_thread.h"
#include "tests/unit/tcp/tcp_pair.h"

namespace sluice {
namespace {

using std::chrono::steady_clock;

constexpr absl::Duration kPatience = absl::Seconds(30);

// The samples of a sampler, passed from its thread to the test's thread.
class Samples {
 public:
  struct Sample {
    steady_clock::time_point now;
    std::vector<TcpSocket> sockets;
  };

  void Add(steady_clock::time_point now, absl::Span<const TcpSocket> sockets) {
    absl::MutexLock lock(&mutex_);
    samples_.push_back({now, {sockets.begin(), sockets.end()}});
  }

  // Waits for and returns the first sample that meets the condition, or nothing after a timeout.
  template <class Condition>
  std::optional<Sample> Await(Condition condition) {
    const auto met = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      for (; looked_at_ < samples_.size(); ++looked_at_) {
        if (condition(samples_[looked_at_])) return true;
      }
      return false;
    };
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithTimeout(absl::Condition(&met), kPatience)) return std::nullopt;
    return samples_[looked_at_++];
  }
  std::vector<Sample> AwaitCount(size_t count) {
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return samples_.size() >= count; };
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), kPatience));
    return samples_;
  }
  size_t count() {
    absl::MutexLock lock(&mutex_);
    return samples_.size();
  }

 private:
  absl::Mutex mutex_;
  std::vector<Sample> samples_ ABSL_GUARDED_BY(mutex_);
  size_t looked_at_ ABSL_GUARDED_BY(mutex_) = 0;
};

class TcpSamplerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto started = Start({}); !started.ok()) GTEST_SKIP() << started.status();
  }

  absl::StatusOr<std::unique_ptr<TcpSampler>> Start(TcpSampler::Options options) {
    if (!options.on_sample) {
      options.on_sample = [this](auto now, auto sockets) { samples_.Add(now, sockets); };
    }
    return TcpSampler::Start(io_thread_.context(), std::move(options));
  }

  IoThread io_thread_;
  Samples samples_;
};

TEST_F(TcpSamplerTest, LooksAgainAndAgain) {
  TcpPair pair;
  const auto before = steady_clock::now();
  const auto sampler = Start({.period = absl::Milliseconds(1)});
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  const auto samples = samples_.AwaitCount(10);
  ASSERT_GE(samples.size(), 10u);
  EXPECT_GT(samples.front().now, before);
  EXPECT_LT(samples.back().now, steady_clock::now());
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].sockets.size(), 2u);
    if (i > 0) {
      EXPECT_GE(samples[i].now - samples[i - 1].now, std::chrono::milliseconds(1));
    }
  }
}

TEST_F(TcpSamplerTest, SeesWhatConnectionsDoMeanwhile) {
  const auto sampler = Start({.period = absl::Milliseconds(1)});
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  EXPECT_TRUE(samples_.Await([](const auto& sample) { return sample.sockets.empty(); }).has_value());
  auto pair = std::make_unique<TcpPair>();
  pair->SendFromClient(12'345);
  const auto sees_it = [inode = InodeOf(pair->server())](const auto& sample) {
    for (const TcpSocket& socket : sample.sockets) {
      if (socket.inode == inode && socket.info.received_bytes == 12'345) return true;
    }
    return false;
  };
  EXPECT_TRUE(samples_.Await(sees_it).has_value());
  pair.reset();
  EXPECT_TRUE(samples_.Await([](const auto& sample) { return sample.sockets.empty(); }).has_value());
}

TEST_F(TcpSamplerTest, DoesNotLookWhileNobodyWantsIt) {
  std::atomic<bool> wanted = false;
  std::atomic<int> asked = 0;
  absl::Notification asked_often;
  const auto sampler = Start({.period = absl::Milliseconds(1), .wanted = [&] {
                                if (++asked == 20) asked_often.Notify();
                                return wanted.load();
                              }});
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  ASSERT_TRUE(asked_often.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(samples_.count(), 0u);
  wanted = true;
  samples_.AwaitCount(3);
}

TEST_F(TcpSamplerTest, LooksNoMoreOftenThanItsPeriod) {
  const auto before = steady_clock::now();
  const auto sampler = Start({.period = absl::Milliseconds(50)});
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  const auto samples = samples_.AwaitCount(3);
  auto last = before;
  for (const auto& sample : samples) {
    EXPECT_GE(sample.now - last, std::chrono::milliseconds(50));
    last = sample.now;
  }
}

TEST_F(TcpSamplerTest, ALookThatCostsMuchIsRare) {
  constexpr auto kCost = std::chrono::milliseconds(5);
  const auto sampler = Start({.period = absl::Milliseconds(1), .on_sample = [&](auto now, auto sockets) {
                                samples_.Add(now, sockets);
                                while (steady_clock::now() - now < kCost) {
                                }
                              }});
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  const auto samples = samples_.AwaitCount(3);
  for (size_t i = 1; i < samples.size(); ++i) EXPECT_GE(samples[i].now - samples[i - 1].now, 30 * kCost);
}

TEST_F(TcpSamplerTest, CallsNothingOfItsOptionsAfterItIsGone) {
  for (int i = 0; i < 50; ++i) {
    auto calls = std::make_unique<std::atomic<int>>(0);
    auto sampler = Start({.period = absl::Nanoseconds(1),
                          .wanted = [&calls = *calls] { return ++calls % 2 == 0; },
                          .on_sample = [&calls = *calls](auto, auto) { ++calls; }});
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    const auto deadline = steady_clock::now() + absl::ToChronoSeconds(kPatience);
    while (*calls < i % 5 && steady_clock::now() < deadline) {
    }
    EXPECT_GE(*calls, i % 5);
    sampler->reset();
    calls.reset();  // AddressSanitizer detects a call after this
    absl::Notification done;
    boost::asio::post(io_thread_.context(), [&done] { done.Notify(); });
    ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  }
}

// The sampler is destroyed during a sample, when the next sample is due at once.
TEST_F(TcpSamplerTest, CallsNothingMoreWhenItGoesDuringALook) {
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> calls = 0;
    absl::Notification looking;
    auto sampler = Start({.period = absl::Nanoseconds(1), .wanted = [&] {
                            if (++calls == 3) {
                              looking.Notify();
                              const auto until = steady_clock::now() + std::chrono::milliseconds(2);
                              while (steady_clock::now() < until) {
                              }
                            }
                            return false;
                          }});
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    ASSERT_TRUE(looking.WaitForNotificationWithTimeout(kPatience));
    sampler->reset();
    const int last = calls;
    for (int turn = 0; turn < 3; ++turn) {
      absl::Notification done;
      boost::asio::post(io_thread_.context(), [&done] { done.Notify(); });
      ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
    }
    EXPECT_EQ(calls, last);
  }
}

TEST_F(TcpSamplerTest, SeveralMayLookAtOnce) {
  TcpPair pair;
  Samples others;
  const auto sampler = Start({.period = absl::Milliseconds(1)});
  const auto other =
      Start({.period = absl::Milliseconds(1), .on_sample = [&](auto now, auto sockets) { others.Add(now, sockets); }});
  ASSERT_TRUE(sampler.ok() && other.ok());
  for (Samples* samples : {&samples_, &others}) {
    for (const auto& sample : samples->AwaitCount(5)) EXPECT_EQ(sample.sockets.size(), 2u);
  }
}

}  // namespace
}  // namespace sluice
