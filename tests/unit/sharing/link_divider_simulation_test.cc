#include <numeric>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/random_seed.h"
#include "tests/unit/sharing/share_simulation.h"

#ifndef SLUICE_SEEDS
#define SLUICE_SEEDS 5
#endif

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;

constexpr int64_t kPortBytes = 32'768;
constexpr int64_t kSru = 10'896;  // the cost of an SRU of 10 KB
constexpr double kRate = 12.5e6;

ShareSimulation::Options PortOptions() {
  ShareSimulation::Options options{.bytes_per_second = kRate};
  options.shares = {.budget_bytes = kPortBytes, .drain_time = 3ms, .start_grace = 0ms};
  return options;
}

std::vector<int64_t> Received(const ShareSimulation& link, size_t processes) {
  std::vector<int64_t> received;
  for (size_t i = 0; i < processes; ++i) received.push_back(link.received_bytes(i));
  return received;
}

struct Case {
  std::vector<double> weights;
  std::vector<int64_t> answer_bytes;
};

class SharesOfBusyProcesses : public ::testing::TestWithParam<Case> {};

// While all processes are busy, their shares of the received bytes are within 10 % of the weights, and the link is
// used.
TEST_P(SharesOfBusyProcesses, AreInProportionToWeights) {
  const auto& [weights, answer_bytes] = GetParam();
  ShareSimulation link(PortOptions());
  for (size_t i = 0; i < weights.size(); ++i) {
    link.AddProcess(weights[i], answer_bytes[i]);
    link.SetBusy(i, true);
  }
  link.RunFor(50ms);
  const std::vector<int64_t> before = Received(link, weights.size());
  link.RunFor(1000ms);
  std::vector<int64_t> received = Received(link, weights.size());
  for (size_t i = 0; i < received.size(); ++i) received[i] -= before[i];
  const auto all = static_cast<double>(std::accumulate(received.begin(), received.end(), int64_t{0}));
  const double all_weights = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < weights.size(); ++i) {
    const double share = static_cast<double>(received[i]) / all;
    EXPECT_NEAR(share / (weights[i] / all_weights), 1, 0.1) << "process " << i;
  }
  EXPECT_GT(all, 0.93 * kRate);
  EXPECT_LE(link.most_in_flight_bytes(), kPortBytes);
}

INSTANTIATE_TEST_SUITE_P(, SharesOfBusyProcesses,
                         ::testing::Values(Case{{1, 1}, {kSru, kSru}}, Case{{3, 1}, {kSru, kSru}},
                                           Case{{3, 1}, {kSru, 5500}}, Case{{3, 1}, {5500, kSru}},
                                           Case{{1, 1, 1, 1}, {kSru, kSru, kSru, kSru}},
                                           Case{{3, 1, 3, 1}, {5500, 5500, 5500, 5500}},
                                           Case{{3, 1, 3, 1}, {kSru, kSru, kSru, kSru}},
                                           Case{{1, 1, 1, 1}, {4500, 4500, 4500, 4500}}, Case{{1, 1}, {21'000, 3000}},
                                           Case{{10, 1}, {kSru, kSru}}));

// Many processes report every few milliseconds, and their turns are shorter.
TEST(LinkDividerSimulationTest, TheSharesOfManyProcessesAreInProportionToWeights) {
  constexpr size_t kProcesses = 256;
  ShareSimulation::Options options{.bytes_per_second = 10 * kRate};
  options.shares = {.budget_bytes = 2 * kPortBytes, .drain_time = 5ms, .start_grace = 0ms};
  ShareSimulation link(options);
  for (size_t i = 0; i < kProcesses; ++i) {
    link.AddProcess(i % 2 == 0 ? 3 : 1, kSru);
    link.SetBusy(i, true);
  }
  link.RunFor(1000ms);
  const std::vector<int64_t> before = Received(link, kProcesses);
  link.RunFor(5000ms);
  std::vector<int64_t> received = Received(link, kProcesses);
  for (size_t i = 0; i < kProcesses; ++i) received[i] -= before[i];
  const auto all = static_cast<double>(std::accumulate(received.begin(), received.end(), int64_t{0}));
  for (size_t i = 0; i < kProcesses; ++i) {
    const double weight = i % 2 == 0 ? 3 : 1;
    EXPECT_NEAR(static_cast<double>(received[i]) / all / (weight / (2 * kProcesses)), 1, 0.3) << "process " << i;
  }
  EXPECT_GT(all, 0.98 * 5 * options.bytes_per_second);
  EXPECT_LE(link.most_in_flight_bytes(), options.shares.budget_bytes);
}

// Returns the shares of the bytes that arrive in one second, by process and class.
std::vector<std::vector<double>> SharesByClass(ShareSimulation& link, const std::vector<size_t>& classes) {
  const auto received = [&] {
    std::vector<std::vector<double>> bytes(classes.size());
    for (size_t i = 0; i < classes.size(); ++i) {
      for (size_t j = 0; j < classes[i]; ++j) bytes[i].push_back(static_cast<double>(link.received_bytes(i, j)));
    }
    return bytes;
  };
  link.RunFor(100ms);
  const std::vector<std::vector<double>> before = received();
  link.RunFor(1000ms);
  std::vector<std::vector<double>> shares = received();
  double all = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    for (size_t j = 0; j < shares[i].size(); ++j) all += shares[i][j] -= before[i][j];
  }
  EXPECT_GT(all, 0.93 * kRate);
  EXPECT_LE(link.most_in_flight_bytes(), kPortBytes);
  for (std::vector<double>& process : shares) {
    for (double& share : process) share /= all;
  }
  return shares;
}

std::vector<ShareSimulation::Class> InteractiveAndBatch(int64_t answer_bytes) {
  return {{.name = "interactive", .weight = 3, .answer_bytes = answer_bytes},
          {.name = "batch", .weight = 1, .answer_bytes = answer_bytes}};
}

class ClassesOfProcesses : public ::testing::TestWithParam<int64_t> {};

TEST_P(ClassesOfProcesses, BatchOfBothTogetherIsAQuarterWhileInteractiveOfEitherWaits) {
  ShareSimulation link(PortOptions());
  for (size_t i = 0; i < 2; ++i) link.AddProcess(1, InteractiveAndBatch(GetParam()));
  link.SetClassBusy(0, 0, true);
  link.SetClassBusy(0, 1, true);
  link.SetClassBusy(1, 1, true);
  const auto shares = SharesByClass(link, {2, 2});
  EXPECT_NEAR(shares[0][0], 0.75, 0.04);
  EXPECT_NEAR(shares[0][1] + shares[1][1], 0.25, 0.04);
  EXPECT_NEAR(shares[0][1], shares[1][1], 0.04);
}

TEST_P(ClassesOfProcesses, ClassesThatMeetInNoProcessShareByTheirWeights) {
  ShareSimulation link(PortOptions());
  for (size_t i = 0; i < 2; ++i) link.AddProcess(1, InteractiveAndBatch(GetParam()));
  link.SetClassBusy(0, 0, true);
  link.SetClassBusy(1, 1, true);
  const auto shares = SharesByClass(link, {2, 2});
  EXPECT_NEAR(shares[0][0], 0.75, 0.04);
  EXPECT_NEAR(shares[1][1], 0.25, 0.04);
}

TEST_P(ClassesOfProcesses, AClassIsDividedByTheWeightsOfTheProcesses) {
  ShareSimulation link(PortOptions());
  link.AddProcess(3, InteractiveAndBatch(GetParam()));
  link.AddProcess(1, InteractiveAndBatch(GetParam()));
  for (size_t i = 0; i < 2; ++i) link.SetClassBusy(i, 1, true);
  const auto shares = SharesByClass(link, {2, 2});
  EXPECT_NEAR(shares[0][1], 0.75, 0.04);
  EXPECT_NEAR(shares[1][1], 0.25, 0.04);
}

TEST_P(ClassesOfProcesses, AProcessWithoutClassesSharesByItsWeight) {
  ShareSimulation link(PortOptions());
  link.AddProcess(1, InteractiveAndBatch(GetParam()));
  link.AddProcess(1, GetParam());
  link.SetClassBusy(0, 0, true);
  link.SetClassBusy(0, 1, true);
  link.SetBusy(1, true);
  const auto shares = SharesByClass(link, {2, 1});
  EXPECT_NEAR(shares[0][0], 0.375, 0.04);
  EXPECT_NEAR(shares[0][1], 0.125, 0.04);
  EXPECT_NEAR(shares[1][0], 0.5, 0.04);
}

// One small call at a time leaves most of the part of its class, and not to the batch of its own process alone.
TEST(LinkDividerSimulationTest, AClassWithASmallDemandLeavesTheRestToTheBatchOfBoth) {
  ShareSimulation link(PortOptions());
  std::vector<ShareSimulation::Class> classes = InteractiveAndBatch(1500);
  classes[0].most_asked_bytes = 1500;
  for (size_t i = 0; i < 2; ++i) link.AddProcess(1, classes);
  link.SetClassBusy(0, 0, true);
  for (size_t i = 0; i < 2; ++i) link.SetClassBusy(i, 1, true);
  const auto shares = SharesByClass(link, {2, 2});
  EXPECT_NEAR(shares[0][0], 1500.0 / kPortBytes, 0.04);
  EXPECT_NEAR(shares[0][1], shares[1][1], 0.05);
}

TEST(LinkDividerSimulationTest, ItLeavesItToTheSameClassOfOthersFirst) {
  ShareSimulation link(PortOptions());
  std::vector<ShareSimulation::Class> classes = InteractiveAndBatch(1500);
  classes[0].most_asked_bytes = 1500;
  link.AddProcess(1, classes);
  link.AddProcess(1, InteractiveAndBatch(1500));
  for (size_t i = 0; i < 2; ++i) {
    link.SetClassBusy(i, 0, true);
    link.SetClassBusy(i, 1, true);
  }
  const auto shares = SharesByClass(link, {2, 2});
  EXPECT_NEAR(shares[0][0] + shares[1][0], 0.75, 0.04);
  EXPECT_NEAR(shares[0][1], shares[1][1], 0.04);
}

TEST(LinkDividerSimulationTest, AClassWithoutTrafficLeavesItsPartWithinMilliseconds) {
  ShareSimulation link(PortOptions());
  for (size_t i = 0; i < 2; ++i) link.AddProcess(1, InteractiveAndBatch(kSru));
  link.SetClassBusy(0, 0, true);
  link.SetClassBusy(1, 1, true);
  link.RunFor(200ms);
  link.SetClassBusy(0, 0, false);
  link.RunFor(10ms);
  EXPECT_EQ(link.limit_bytes(1), kPortBytes);
  link.SetClassBusy(0, 0, true);
  link.RunFor(10ms);
  EXPECT_GT(link.limit_bytes(0), kPortBytes / 2);
}

INSTANTIATE_TEST_SUITE_P(, ClassesOfProcesses, ::testing::Values(1500, 5500, kSru));

TEST(LinkDividerSimulationTest, OneAloneHasTheWholeLinkWhenTheOthersAreIdle) {
  ShareSimulation link(PortOptions());
  for (size_t i = 0; i < 4; ++i) {
    link.AddProcess(1, kSru);
    link.SetBusy(i, true);
  }
  link.RunFor(200ms);
  for (size_t i = 1; i < 4; ++i) link.SetBusy(i, false);
  link.RunFor(10ms);
  EXPECT_EQ(link.limit_bytes(0), kPortBytes);
  const int64_t before = link.received_bytes(0);
  link.RunFor(100ms);
  EXPECT_GT(static_cast<double>(link.received_bytes(0) - before), 0.95 * kRate / 10);
}

TEST(LinkDividerSimulationTest, AStoppedProcessGivesUpItsShareAndGetsItBack) {
  ShareSimulation link(PortOptions());
  for (size_t i = 0; i < 2; ++i) {
    link.AddProcess(1, kSru);
    link.SetBusy(i, true);
  }
  link.RunFor(100ms);
  link.Stop(1);
  link.RunFor(265ms);
  EXPECT_EQ(link.limit_bytes(0), kPortBytes);
  link.Continue(1);
  link.RunFor(20ms);
  EXPECT_GE(link.limit_bytes(1), kSru);
  EXPECT_LE(link.most_in_flight_bytes(), kPortBytes);
}

// Processes join, leave, stop, are killed and become idle, and messages take any time. The bytes in flight never exceed
// the budget, and in the end every process is served again.
class RandomLife {
 public:
  explicit RandomLife(uint64_t seed) : random_(seed), link_(Options()) {}

  void Run() {
    for (int i = 0; i < 5; ++i) Add();
    for (int step = 0; step < 200; ++step) {
      Act();
      link_.RunFor(std::chrono::nanoseconds(Between(0, 20'000'000)));
      ASSERT_LE(link_.most_in_flight_bytes(), kPortBytes);
    }
    for (const size_t process : alive_) {
      link_.Continue(process);
      link_.SetClassBusy(process, RandomClass(process), true);
    }
    ExpectAllReceive(alive_);
    // Processes in fifo mode wait for the end of that block.
    if (link_.shares().options().mode == SharingMode::kWeighted) ExpectNobodyWaitsForSlowWorkers();
    for (const size_t process : alive_) link_.Kill(process);
    link_.RunFor(500ms);
    EXPECT_EQ(link_.shares().entitled_bytes(), 0);
    EXPECT_EQ(link_.in_flight_bytes(), 0);
  }

 private:
  ShareSimulation::Options Options() {
    ShareSimulation::Options options = PortOptions();
    if (Between(0, 3) == 0) options.shares.mode = SharingMode::kFifo;
    if (Between(0, 1) == 0) options.shares.division_pause = std::chrono::nanoseconds(Between(0, 500'000));
    options.message_delay = [this] {
      return std::chrono::nanoseconds(Between(0, 20) == 0 ? Between(0, 20'000'000) : Between(10'000, 200'000));
    };
    return options;
  }

  void ExpectAllReceive(const std::vector<size_t>& busy) {
    link_.RunFor(500ms);
    const std::vector<int64_t> before = Received(link_, processes_);
    link_.RunFor(1000ms);
    for (const size_t process : busy) {
      EXPECT_GT(link_.received_bytes(process), before[process]) << "process " << process;
    }
  }

  void ExpectNobodyWaitsForSlowWorkers() {
    for (size_t i = 0; i < link_.classes(alive_.front()); ++i) link_.SetClassBusy(alive_.front(), i, false);
    link_.CallSlowWorker(alive_.front(), 2000ms);
    ExpectAllReceive({alive_.begin() + 1, alive_.end()});
  }

  int64_t Between(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }

  void Add() {
    const auto weight = static_cast<double>(Between(1, 8));
    ++processes_;
    if (Between(0, 1) == 0) return alive_.push_back(link_.AddProcess(weight, Between(300, kPortBytes)));
    std::vector<ShareSimulation::Class> classes;
    for (const char* name : {"interactive", "batch", "default"}) {
      if (Between(0, 2) == 0 && !classes.empty()) continue;
      classes.push_back({.name = name,
                         .weight = static_cast<double>(Between(1, 8)),
                         .answer_bytes = Between(300, kPortBytes),
                         .most_asked_bytes = Between(0, 1) == 0 ? kPortBytes : 100 * kPortBytes});
    }
    alive_.push_back(link_.AddProcess(weight, classes));
  }

  void Act() {
    const size_t index = Between(0, std::ssize(alive_) - 1);
    const size_t process = alive_[index];
    switch (Between(0, 10)) {
      case 0:
        return link_.Stop(process);
      case 1:
        return link_.Continue(process);
      case 2:
        if (Between(0, 2) > 0) return;
        link_.Kill(process);
        alive_.erase(alive_.begin() + static_cast<int64_t>(index));
        return Add();
      case 3:
        return link_.SetAnswerBytes(process, Between(300, kPortBytes));
      case 4:
        return link_.CallSlowWorker(process, std::chrono::milliseconds(Between(0, 1000)));
      case 5:
      case 6:
        return link_.SetClassBusy(process, RandomClass(process), false);
      default:
        return link_.SetClassBusy(process, RandomClass(process), true);
    }
  }
  size_t RandomClass(size_t process) { return Between(0, static_cast<int64_t>(link_.classes(process)) - 1); }

  std::mt19937_64 random_;
  ShareSimulation link_;
  std::vector<size_t> alive_;
  size_t processes_ = 0;
};

constexpr int kSeeds = SLUICE_SEEDS;

TEST(LinkDividerRandomTest, WhatIsInFlightFitsTheBudgetWhateverHappens) {
  const auto [first, replays] = TakeRandomSeed();
  const int lives = replays ? 1 : kSeeds;
  for (int life = 0; life < lives; ++life) {
    SCOPED_TRACE("replay with SLUICE_SEED=" + std::to_string(first + life));
    RandomLife(first + life).Run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace sluice
