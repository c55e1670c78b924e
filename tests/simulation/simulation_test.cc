#include <cstdlib>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/random_seed.h"
#include "tests/simulation/simulated_world.h"

// The client code as it is, HTTP/2 bytes included, in virtual time, with everything going wrong that the seeds think
// of. SLUICE_SIMULATION_SEEDS=... says how many seeds are tried, SLUICE_SEED=... which is the first: alone, it is
// replayed.
namespace sluice {
namespace {

using testing::FaultCounts;
using testing::kFaultNames;
using testing::kFaults;
using testing::SimulatedWorld;

constexpr uint64_t kFewSeeds = 200;
// In so many seeds that follow each other every fault is hit.
constexpr uint64_t kEnoughSeeds = 1000;

uint64_t SeedsToTry(uint64_t otherwise) {
  uint64_t seeds = otherwise;
  if (const char* given = std::getenv("SLUICE_SIMULATION_SEEDS"); given != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(given, &seeds)) << "SLUICE_SIMULATION_SEEDS is not a number: " << given;
  }
  return seeds;
}

TEST(SimulationTest, WhatAlwaysHoldsDoes) {
  const RandomSeed first = TakeRandomSeed();
  const uint64_t seeds = SeedsToTry(first.replays ? 1 : kFewSeeds);
  FaultCounts faults;
  size_t calls = 0;
  size_t answered = 0;
  for (uint64_t seed = first.value; seed < first.value + seeds; ++seed) {
    SimulatedWorld world(seed);
    world.Run();
    ASSERT_TRUE(world.breaches().empty()) << "SLUICE_SEED=" << seed << "\n" << absl::StrJoin(world.breaches(), "\n");
    ASSERT_GE(world.workers(), SimulatedWorld::kLeastWorkers);
    ASSERT_GE(world.calls(), SimulatedWorld::kLeastCalls);
    faults.Add(world.faults());
    calls += world.calls();
    answered += world.answered();
  }
  std::cout << seeds << " seeds, " << calls << " calls, " << answered << " answered\n";
  for (size_t i = 0; i < kFaults; ++i) {
    std::cout << "fault " << kFaultNames[i] << ": " << faults.hits[i] << '\n';
    EXPECT_TRUE(faults.hits[i] > 0 || seeds < kEnoughSeeds) << "never hit: " << kFaultNames[i];
  }
}

TEST(SimulationTest, ASeedReplaysExactly) {
  const RandomSeed seed = TakeRandomSeed();
  uint64_t digests[2] = {};
  for (uint64_t& digest : digests) {
    SimulatedWorld world(seed.value);
    world.Run();
    digest = world.digest();
  }
  EXPECT_EQ(digests[0], digests[1]) << "SLUICE_SEED=" << seed.value;
}

}  // namespace
}  // namespace sluice
