#include "tests/simulation/receive_window.h"

#include <chrono>
#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace sluice::testing {
namespace {

using std::chrono::milliseconds;

// A worker that has sent 10 KB, and a proxy with a window of 2 KB. Nothing is in the way of the bytes.
class ReceiveWindowTest : public ::testing::Test {
 protected:
  ReceiveWindowTest() {
    auto pipe = std::make_shared<SimulatedPipe>(
        events_, std::nullopt, milliseconds(1),
        [this](absl::string_view bytes) {
          arrived_bytes_ += bytes.size();
          window_->OnArrived(bytes.size());
        },
        [](const absl::Status&) {});
    window_ = std::make_shared<ReceiveWindow>(events_, milliseconds(1), 2000, std::move(pipe));
    window_->Write(std::string(10'000, 'x'));
    Run();
  }

  void Run() {
    while (events_.Step(TimePoint::max())) {
    }
  }

  EventQueue events_;
  size_t arrived_bytes_ = 0;
  std::shared_ptr<ReceiveWindow> window_;
};

TEST_F(ReceiveWindowTest, HoldsTheSenderBack) {
  EXPECT_EQ(arrived_bytes_, 2000u);
  EXPECT_EQ(window_->advertised_bytes(), 0);
  window_->OnRead(500);
  EXPECT_EQ(window_->advertised_bytes(), 500);
  Run();
  EXPECT_EQ(arrived_bytes_, 2500u);
}

TEST_F(ReceiveWindowTest, ALargerWindowSendsNothingUntilBytesAreRead) {
  window_->Resize(4000);
  Run();
  EXPECT_EQ(arrived_bytes_, 2000u);
  window_->OnRead(1000);
  Run();
  EXPECT_EQ(arrived_bytes_, 5000u);
}

TEST_F(ReceiveWindowTest, WhatWasAdvertisedIsNotTakenBack) {
  window_->OnRead(2000);
  window_->Resize(1000);
  Run();
  EXPECT_EQ(arrived_bytes_, 4000u);
  window_->OnRead(1000);
  Run();
  EXPECT_EQ(arrived_bytes_, 4000u);
  window_->OnRead(1000);
  Run();
  EXPECT_EQ(arrived_bytes_, 5000u);
}

}  // namespace
}  // namespace sluice::testing
