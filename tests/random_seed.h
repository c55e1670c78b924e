#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"

namespace sluice {

// The source of all random values of a randomised test: a new seed each time, or the seed that SLUICE_SEED=... replays.
struct RandomSeed {
  uint64_t value = std::random_device()();
  bool replays = false;
};

inline RandomSeed TakeRandomSeed() {
  RandomSeed seed;
  if (const char* given = std::getenv("SLUICE_SEED"); given != nullptr) {
    seed.replays = true;
    EXPECT_TRUE(absl::SimpleAtoi(given, &seed.value)) << "SLUICE_SEED is not a number: " << given;
  }
  return seed;
}

}  // namespace sluice
