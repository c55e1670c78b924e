#include "lib/model/slow_start.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

#include "sluice/plan.h"

#include "tests/unit/model/profiles.h"

namespace sluice {
namespace {

constexpr int64_t kLargestSru = 400;
constexpr int64_t kLargestInitialWindow = 16;

LinkProfile Fresh(int64_t initial_window) {
  LinkProfile profile = PaperProfile();
  profile.initial_window_packets = initial_window;
  return profile;
}

// One worker in slow start, packet by packet (RFC 5681 with the window in packets): every acknowledged packet increases
// the window by one. Independent of the code under test.
class SlowStartWorker {
 public:
  SlowStartWorker(int64_t sru_packets, int64_t initial_window) : unsent_(sru_packets), window_(initial_window) {
    Send();
  }
  bool done() const { return unsent_ == 0 && in_flight_ == 0; }
  int64_t in_flight() const { return in_flight_; }
  void Acknowledge(int64_t packets) {
    in_flight_ -= packets;
    window_ += packets;
    Send();
  }

 private:
  void Send() {
    const int64_t packets = std::min(unsent_, window_ - in_flight_);
    unsent_ -= packets;
    in_flight_ += packets;
  }
  int64_t unsent_;
  int64_t window_;
  int64_t in_flight_ = 0;
};

// Returns the most packets in the buffer if each packet is acknowledged when it leaves: all packets in flight are in
// the buffer.
int64_t MostInBuffer(int64_t sru_packets, int64_t initial_window) {
  SlowStartWorker worker(sru_packets, initial_window);
  int64_t most = worker.in_flight();
  while (!worker.done()) {
    worker.Acknowledge(1);
    most = std::max(most, worker.in_flight());
  }
  return most;
}

int64_t RoundsToSend(int64_t sru_packets, int64_t initial_window) {
  SlowStartWorker worker(sru_packets, initial_window);
  int64_t rounds = 0;
  for (; !worker.done(); ++rounds) worker.Acknowledge(worker.in_flight());
  return rounds;
}

template <class Check>
void ForEverySruAndWindow(Check check) {
  for (int64_t initial_window = 1; initial_window <= kLargestInitialWindow; ++initial_window) {
    for (int64_t sru_packets = 1; sru_packets <= kLargestSru; ++sru_packets) {
      SCOPED_TRACE(testing::Message() << "IW " << initial_window << ", S_SRU " << sru_packets);
      check(sru_packets, initial_window);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Equations 9 to 11 as printed, for an initial window of 1.
int64_t PaperWndMax(int64_t sru_packets) {
  const auto p2 = static_cast<int64_t>(std::floor(std::log2(static_cast<double>(sru_packets + 1))));
  const int64_t wnd_a = int64_t{1} << (p2 - 1);
  const int64_t wnd_b = sru_packets - (int64_t{1} << p2) + 1;
  if (wnd_b == 0) return wnd_a;
  return wnd_b <= wnd_a ? wnd_a + wnd_b - 1 : 2 * wnd_a - 1;
}

TEST(WndMaxTest, PersistentConnectionMaySendTheWholeSruAtOnce) {
  const LinkProfile profile = PersistentProfile();
  for (const int64_t packets : {0, 1, 10, 11, 400, 100'000}) EXPECT_EQ(WndMaxPackets(profile, packets), packets);
}

TEST(WndMaxTest, SruWithinTheInitialWindowIsSentAtOnce) {
  for (int64_t packets = 0; packets <= 10; ++packets) EXPECT_EQ(WndMaxPackets(Fresh(10), packets), packets);
}

TEST(WndMaxTest, InitialWindowOfOneIsThePapersEquation) {
  for (int64_t packets = 1; packets <= 100'000; ++packets) {
    ASSERT_EQ(WndMaxPackets(Fresh(1), packets), PaperWndMax(packets)) << packets;
  }
}

TEST(WndMaxTest, SlowStartNeverExceedsTheBound) {
  ForEverySruAndWindow([](int64_t sru_packets, int64_t initial_window) {
    EXPECT_LE(MostInBuffer(sru_packets, initial_window), WndMaxPackets(Fresh(initial_window), sru_packets));
  });
}

TEST(WndMaxTest, AcknowledgementsOfSeveralPacketsNeverExceedTheBoundEither) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  ForEverySruAndWindow([&](int64_t sru_packets, int64_t initial_window) {
    const int64_t bound = WndMaxPackets(Fresh(initial_window), sru_packets);
    SlowStartWorker worker(sru_packets, initial_window);
    while (!worker.done()) {
      ASSERT_LE(worker.in_flight(), bound);
      worker.Acknowledge(std::uniform_int_distribution<int64_t>(1, worker.in_flight())(random));
    }
  });
}

// The bound is exact if the SRU ends within two packets of a full window, on either side.
TEST(WndMaxTest, BoundIsAttainedAroundEveryFullWindow) {
  int checked = 0;
  for (int64_t initial_window = 1; initial_window <= kLargestInitialWindow; ++initial_window) {
    int64_t full_windows = initial_window;
    for (int64_t window = initial_window; full_windows <= kLargestSru; window *= 2, full_windows += window) {
      for (const int64_t beyond : {-2, -1, 0, 1, 2}) {
        const int64_t sru_packets = full_windows + beyond;
        if (sru_packets < 1) continue;
        EXPECT_EQ(WndMaxPackets(Fresh(initial_window), sru_packets), MostInBuffer(sru_packets, initial_window))
            << "IW " << initial_window << ", S_SRU " << sru_packets;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 300);
}

TEST(WndMaxTest, BoundIsNeverMoreThanAThirdAboveWhatSlowStartReaches) {
  ForEverySruAndWindow([](int64_t sru_packets, int64_t initial_window) {
    EXPECT_LE(3 * WndMaxPackets(Fresh(initial_window), sru_packets), 4 * MostInBuffer(sru_packets, initial_window));
  });
}

TEST(WndMaxTest, GrowsWithTheSru) {
  ForEverySruAndWindow([](int64_t sru_packets, int64_t initial_window) {
    const LinkProfile profile = Fresh(initial_window);
    EXPECT_LE(WndMaxPackets(profile, sru_packets - 1), WndMaxPackets(profile, sru_packets));
  });
}

TEST(SendingRoundsTest, PersistentConnectionNeedsOne) {
  EXPECT_EQ(SendingRounds(PersistentProfile(), 1), 1);
  EXPECT_EQ(SendingRounds(PersistentProfile(), 100'000), 1);
}

TEST(SendingRoundsTest, FreshConnectionDoublesItsWindowEveryRound) {
  ForEverySruAndWindow([](int64_t sru_packets, int64_t initial_window) {
    EXPECT_EQ(SendingRounds(Fresh(initial_window), sru_packets), RoundsToSend(sru_packets, initial_window));
  });
}

TEST(SendingRoundsTest, InitialWindowOfOneIsThePapersLogarithm) {
  for (int64_t packets = 1; packets <= 100'000; ++packets) {
    ASSERT_EQ(SendingRounds(Fresh(1), packets), std::ceil(std::log2(static_cast<double>(packets + 1)))) << packets;
  }
}

}  // namespace
}  // namespace sluice
