#include <cstdlib>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/random_seed.h"
#include "tests/simulation/simulated_world.h"

// The client code as it is, HTTP/2 bytes included, in virtual time, with everything going wrong that the seeds think
// of. SLUICE_SEED=... replays one; SLUICE_SIMULATION_SEEDS=... says how many are tried.
namespace sluice {
namespace {

using testing::FaultCounts;
using testing::SimulatedWorld;

uint64_t SeedsToTry(uint64_t otherwise) {
  uint64_t seeds = otherwise;
  if (const char* given = std::getenv("SLUICE_SIMULATION_SEEDS"); given != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(given, &seeds)) << "SLUICE_SIMULATION_SEEDS is not a number: " << given;
  }
  return seeds;
}

void RunSeeds(uint64_t count, const SimulatedWorld::Options& base) {
  const RandomSeed first = TakeRandomSeed();
  if (first.replays) count = 1;
  FaultCounts faults;
  size_t calls = 0;
  size_t answered = 0;
  for (uint64_t i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
    SimulatedWorld::Options options = base;
    options.seed = first.value + i;
    SimulatedWorld world(options);
    world.Run();
    EXPECT_TRUE(world.breaches().empty()) << "SLUICE_SEED=" << options.seed << "\n"
                                          << absl::StrJoin(world.breaches(), "\n");
    EXPECT_GE(world.calls(), options.calls);
    faults.Add(world.faults());
    calls += world.calls();
    answered += world.answered();
  }
  std::cout << count << " seeds, " << calls << " calls, " << answered << " answered; faults: " << faults.ToString()
            << '\n';
}

TEST(SimulationTest, WhatAlwaysHoldsDoesWithFaults) {
  RunSeeds(SeedsToTry(200), {.faults = true});
}

TEST(SimulationTest, WhatAlwaysHoldsDoesWithoutFaults) {
  RunSeeds(SeedsToTry(100), {.faults = false});
}

TEST(SimulationTest, HungWorkersHoldUpNobody) {
  RunSeeds(SeedsToTry(50), {.hung_workers = 3, .faults = false});
}

TEST(SimulationTest, ASeedReplaysExactly) {
  const RandomSeed seed = TakeRandomSeed();
  uint64_t digests[2] = {};
  for (uint64_t& digest : digests) {
    SimulatedWorld world({.seed = seed.value});
    world.Run();
    digest = world.digest();
  }
  EXPECT_EQ(digests[0], digests[1]) << "SLUICE_SEED=" << seed.value;
}

}  // namespace
}  // namespace sluice
