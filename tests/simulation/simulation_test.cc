#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/random_seed.h"
#include "tests/simulation/proxied_world.h"
#include "tests/simulation/simulated_world.h"

// Runs the real client code, including its HTTP/2 bytes, in virtual time, with all faults that the seeds draw.
// SLUICE_SIMULATION_SEEDS=... sets the number of seeds, and SLUICE_SEED=... the first seed. SLUICE_SEED alone replays
// this seed.
namespace sluice {
namespace {

using testing::Fault;
using testing::FaultCounts;
using testing::kFaultNames;
using testing::kFaults;
using testing::ProxiedWorld;
using testing::SimulatedWorld;

// tests/simulation/run tries many more.
#ifndef SLUICE_SEEDS
#define SLUICE_SEEDS 64
#endif
constexpr uint64_t kFewSeeds = SLUICE_SEEDS;
constexpr uint64_t kFewProxiedSeeds = kFewSeeds / 4;  // each takes longer
// Every fault occurs within this many consecutive seeds.
constexpr uint64_t kEnoughSeeds = 500;

uint64_t SeedsToTry(uint64_t otherwise) {
  uint64_t seeds = otherwise;
  if (const char* given = std::getenv("SLUICE_SIMULATION_SEEDS"); given != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(given, &seeds)) << "SLUICE_SIMULATION_SEEDS is not a number: " << given;
  }
  return seeds;
}

struct Tried {
  FaultCounts faults;
  uint64_t seeds = 0;
};

template <class World>
Tried TrySeeds(uint64_t few) {
  const RandomSeed first = TakeRandomSeed();
  Tried tried{.seeds = SeedsToTry(first.replays ? 1 : few)};
  std::cout << "seeds from " << first.value << " on" << std::endl;  // now, in case that one of them never ends
  size_t calls = 0;
  size_t answered = 0;
  for (uint64_t seed = first.value; seed < first.value + tried.seeds; ++seed) {
    World world(seed);
    world.Run();
    EXPECT_TRUE(world.breaches().empty()) << "SLUICE_SEED=" << seed << "\n" << absl::StrJoin(world.breaches(), "\n");
    EXPECT_GE(world.calls(), World::kMinCalls);
    tried.faults.Add(world.faults());
    calls += world.calls();
    answered += world.answered();
    if (::testing::Test::HasFailure()) break;
  }
  std::cout << tried.seeds << " seeds, " << calls << " calls, " << answered << " answered\n";
  return tried;
}

// Expects each fault to occur, except faults that these worlds do not have.
void ExpectHit(const Tried& tried, const std::vector<Fault>& not_here) {
  for (size_t i = 0; i < kFaults; ++i) {
    const bool here = std::find(not_here.begin(), not_here.end(), static_cast<Fault>(i)) == not_here.end();
    std::cout << "fault " << kFaultNames[i] << ": " << tried.faults.hits[i] << '\n';
    EXPECT_TRUE(tried.faults.hits[i] > 0 || !here || tried.seeds < kEnoughSeeds) << "never hit: " << kFaultNames[i];
  }
}

template <class World>
void ExpectReplays() {
  const RandomSeed seed = TakeRandomSeed();
  uint64_t digests[2] = {};
  for (uint64_t& digest : digests) {
    World world(seed.value);
    world.Run();
    digest = world.digest();
  }
  EXPECT_EQ(digests[0], digests[1]) << "SLUICE_SEED=" << seed.value;
}

TEST(SimulationTest, WhatAlwaysHoldsDoes) {
  ExpectHit(TrySeeds<SimulatedWorld>(kFewSeeds),
            {Fault::kHungClient, Fault::kClientGone, Fault::kTunnelPause, Fault::kTunnelStop, Fault::kTunnelLost,
             Fault::kTunnelPipeline, Fault::kTunnelStuck, Fault::kTunnelSurprise, Fault::kTunnelStream});
}

TEST(SimulationTest, ASeedReplaysExactly) {
  ExpectReplays<SimulatedWorld>();
}

TEST(ProxiedSimulationTest, WhatAlwaysHoldsDoes) {
  // The proxy has no callbacks. Its worlds have no storms, no unreachable hosts, no times when all workers fail, and no
  // neighbours.
  ExpectHit(TrySeeds<ProxiedWorld>(kFewProxiedSeeds),
            {Fault::kSlowReader, Fault::kRationed, Fault::kDeadAddress, Fault::kTlsHandshake, Fault::kErrorsInBulk,
             Fault::kLateBlock, Fault::kGaveWay, Fault::kBesideLarger, Fault::kShortDeadline, Fault::kBesideMany,
             Fault::kErrorDetails});
}

TEST(ProxiedSimulationTest, ASeedReplaysExactly) {
  ExpectReplays<ProxiedWorld>();
}

}  // namespace
}  // namespace sluice
