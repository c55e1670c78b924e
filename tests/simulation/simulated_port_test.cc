#include "tests/simulation/simulated_port.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simulation/faults.h"

// Tests that the port reports which packets overflowed it, and which came late.
namespace sluice::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

constexpr int64_t kBufferBytes = 3000;

class SimulatedPortTest : public ::testing::Test {
 protected:
  SimulatedPortTest() {
    port_.SetOnOverflow([this](int64_t beyond_bytes) { overflows_.push_back(beyond_bytes); });
  }

  // Sends a packet of 1 KB, which takes the port 1 ms. The budget is charged for it for `charged_for`.
  bool Send(milliseconds charged_for) {
    return port_.Send({.bytes = 1000, .charged_until = [until = events_.now() + charged_for] { return until; }}, [] {});
  }
  bool Send() {
    return port_.Send({.bytes = 1000}, [] {});
  }
  void Pass(milliseconds pause) {
    events_.After(pause, [] {});
    const TimePoint end = events_.now() + pause;
    while (events_.Step(end)) {
    }
  }

  EventQueue events_;
  Dice dice_{1};
  FaultCounts faults_;
  SimulatedPort port_{events_, dice_, faults_, 1e6, kBufferBytes, 0};
  std::vector<int64_t> overflows_;
};

TEST_F(SimulatedPortTest, SaysByHowMuchItOverflowed) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Send());
  EXPECT_FALSE(Send());
  EXPECT_THAT(overflows_, ElementsAre(1000));
}

TEST_F(SimulatedPortTest, WhatTheBudgetIsNotChargedForIsNoReasonToOverflow) {
  EXPECT_TRUE(Send());
  EXPECT_TRUE(Send(milliseconds(0)));
  EXPECT_TRUE(Send());
  EXPECT_FALSE(Send());
  EXPECT_FALSE(Send(milliseconds(0)));
  EXPECT_THAT(overflows_, ElementsAre(0, -1000));
}

TEST_F(SimulatedPortTest, AChargeMayEndWhileAPacketWaits) {
  EXPECT_TRUE(Send());
  EXPECT_TRUE(Send(milliseconds(1)));
  EXPECT_TRUE(Send());
  EXPECT_FALSE(Send());
  Pass(milliseconds(1));
  EXPECT_TRUE(Send());
  EXPECT_FALSE(Send());
  EXPECT_THAT(overflows_, ElementsAre(1000, 0));
}

TEST_F(SimulatedPortTest, SaysHowLongAfterItsChargeAPacketWasThrough) {
  EXPECT_TRUE(Send(milliseconds(1)));
  Pass(milliseconds(1));
  EXPECT_EQ(port_.latest(), milliseconds(0));
  EXPECT_TRUE(Send());
  EXPECT_TRUE(Send(milliseconds(-3)));
  Pass(milliseconds(2));
  EXPECT_EQ(port_.latest(), milliseconds(5));
}

}  // namespace
}  // namespace sluice::testing
