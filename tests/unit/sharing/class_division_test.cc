#include "lib/sharing/class_division.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/random_seed.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMuch = 1'000'000;
constexpr size_t kInteractive = 0;
constexpr size_t kBatch = 1;

ClientClaim InteractiveAndBatch(int64_t interactive_bytes, int64_t batch_bytes, double weight = 1) {
  return {.weight = weight, .classes = {{kInteractive, 3, interactive_bytes}, {kBatch, 1, batch_bytes}}};
}

using Parts = std::vector<std::vector<ClassPart>>;

// The parts in the order of the claims.
Parts PartsOf(const ClassDivision& division, const std::vector<ClientClaim>& clients) {
  Parts parts;
  for (const ClientClaim& client : clients) {
    std::vector<ClassPart>& of = parts.emplace_back();
    for (const ClassClaim& claim : client.classes) of.push_back(division.PartOf(client, claim));
  }
  return parts;
}

Parts DivideByClass(int64_t bytes, std::vector<ClientClaim> clients) {
  ClassDivision division;
  for (ClientClaim& client : clients) division.Add(client);
  division.Divide(bytes);
  return PartsOf(division, clients);
}

std::vector<std::vector<int64_t>> BytesOf(const std::vector<ClientClaim>& clients) {
  std::vector<std::vector<int64_t>> bytes;
  for (const std::vector<ClassPart>& parts : DivideByClass(32'000, clients)) {
    std::vector<int64_t>& of = bytes.emplace_back();
    // To ten bytes: each step rounds down.
    for (const ClassPart& part : parts) of.push_back((part.bytes + 9) / 10 * 10);
  }
  return bytes;
}

TEST(ClassDivisionTest, WhatBatchHasTogetherIsAQuarter) {
  EXPECT_THAT(BytesOf({InteractiveAndBatch(kMuch, kMuch), InteractiveAndBatch(0, kMuch)}),
              ElementsAre(ElementsAre(24'000, 4000), ElementsAre(0, 4000)));
  EXPECT_THAT(BytesOf({InteractiveAndBatch(kMuch, 0), InteractiveAndBatch(0, kMuch)}),
              ElementsAre(ElementsAre(24'000, 0), ElementsAre(0, 8000)));
  EXPECT_THAT(BytesOf({InteractiveAndBatch(0, kMuch), InteractiveAndBatch(0, kMuch)}),
              ElementsAre(ElementsAre(0, 16'000), ElementsAre(0, 16'000)));
}

TEST(ClassDivisionTest, WithinAClassTheWeightsOfTheClientsCount) {
  EXPECT_THAT(BytesOf({InteractiveAndBatch(kMuch, kMuch, 3), InteractiveAndBatch(kMuch, kMuch)}),
              ElementsAre(ElementsAre(18'000, 6000), ElementsAre(6000, 2000)));
}

TEST(ClassDivisionTest, APartAboveTheDemandStaysInTheClassIfOthersWantIt) {
  EXPECT_THAT(BytesOf({InteractiveAndBatch(2000, kMuch), InteractiveAndBatch(kMuch, kMuch)}),
              ElementsAre(ElementsAre(2000, 4000), ElementsAre(22'000, 4000)));
  EXPECT_THAT(BytesOf({InteractiveAndBatch(2000, kMuch), InteractiveAndBatch(0, kMuch)}),
              ElementsAre(ElementsAre(2000, 15'000), ElementsAre(0, 15'000)));
}

// A weight of a class counts within its client, so no client takes more by a large number.
TEST(ClassDivisionTest, ClientsWithoutACommonClassShareByTheirWeights) {
  const ClientClaim other{.weight = 1, .classes = {{2, 1000, kMuch}}};
  EXPECT_THAT(BytesOf({InteractiveAndBatch(kMuch, kMuch), other}),
              ElementsAre(ElementsAre(12'000, 4000), ElementsAre(16'000)));
  EXPECT_THAT(BytesOf({InteractiveAndBatch(0, kMuch), other}),
              ElementsAre(ElementsAre(0, 16'000), ElementsAre(16'000)));
}

std::vector<std::vector<int64_t>> FairBytesOf(const std::vector<ClientClaim>& clients) {
  std::vector<std::vector<int64_t>> bytes;
  for (const std::vector<ClassPart>& parts : DivideByClass(32'000, clients)) {
    std::vector<int64_t>& of = bytes.emplace_back();
    for (const ClassPart& part : parts) of.push_back((part.fair_bytes + 9) / 10 * 10);
  }
  return bytes;
}

// A class with little traffic keeps its weight beside the other class of its client.
TEST(ClassDivisionTest, TheFairPartDoesNotDependOnItsDemand) {
  EXPECT_THAT(FairBytesOf({InteractiveAndBatch(2000, kMuch)}), ElementsAre(ElementsAre(24'000, 8000)));
  EXPECT_THAT(FairBytesOf({InteractiveAndBatch(2000, kMuch), InteractiveAndBatch(2000, kMuch)}),
              ElementsAre(ElementsAre(12'000, 4000), ElementsAre(12'000, 4000)));
}

TEST(ClassDivisionTest, TheFairPartHasWhatOthersOfTheClassDoNotWant) {
  EXPECT_THAT(FairBytesOf({InteractiveAndBatch(2000, kMuch), InteractiveAndBatch(kMuch, kMuch)}),
              ElementsAre(ElementsAre(12'000, 4000), ElementsAre(22'000, 4000)));
}

TEST(ClassDivisionTest, TheFairPartOfAClassWithoutTrafficIsThatOfItsClient) {
  EXPECT_THAT(FairBytesOf({InteractiveAndBatch(kMuch, kMuch), InteractiveAndBatch(kMuch, 0)}),
              ElementsAre(ElementsAre(12'000, 8000), ElementsAre(12'000, 4000)));
}

TEST(ClassDivisionRandomTest, PartsAreWithinDemandsAndUseAll) {
  const auto [first, replays] = TakeRandomSeed();
  for (uint64_t seed = first; seed < first + (replays ? 1 : 1000); ++seed) {
    SCOPED_TRACE("replay with SLUICE_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto between = [&](int64_t least, int64_t most) {
      return std::uniform_int_distribution<int64_t>(least, most)(random);
    };
    std::vector<ClientClaim> clients;
    int64_t demand_bytes = 0;
    int64_t claims = 0;
    const int64_t bytes = between(1, 100'000);
    for (int64_t i = between(1, 8); i > 0; --i) {
      ClientClaim& client = clients.emplace_back(ClientClaim{.weight = std::exp2(static_cast<double>(between(-9, 9)))});
      std::set<size_t> classes;
      for (int64_t j = between(1, 4); j > 0; --j) classes.insert(static_cast<size_t>(between(0, 5)));
      for (const size_t traffic_class : classes) {
        const double weight = std::exp2(static_cast<double>(between(-9, 9)));
        client.classes.push_back({traffic_class, weight, std::max<int64_t>(between(-20'000, 50'000), 0)});
        demand_bytes += std::min(client.classes.back().demand_bytes, bytes);
        ++claims;
      }
    }
    const auto parts = DivideByClass(bytes, clients);
    int64_t sum_bytes = 0;
    ASSERT_EQ(parts.size(), clients.size());
    for (size_t i = 0; i < clients.size(); ++i) {
      ASSERT_EQ(parts[i].size(), clients[i].classes.size());
      for (size_t j = 0; j < parts[i].size(); ++j) {
        EXPECT_GE(parts[i][j].bytes, 0);
        EXPECT_LE(parts[i][j].bytes, clients[i].classes[j].demand_bytes);
        EXPECT_GE(parts[i][j].fair_bytes, 0);
        sum_bytes += parts[i][j].bytes;
      }
    }
    EXPECT_LE(sum_bytes, bytes);
    EXPECT_GE(sum_bytes, std::min(bytes, demand_bytes) - 2 * claims);
    if (::testing::Test::HasFailure()) return;
  }
}

// Claims change one by one, and each changed claim takes its parts after the next division, like the claims that the
// division names.
TEST(ClassDivisionRandomTest, ChangedClaimsHaveThePartsOfANewDivision) {
  constexpr int64_t kBytes = 500'000;
  const auto [first, replays] = TakeRandomSeed();
  int64_t small_divisions = 0;
  for (uint64_t seed = first; seed < first + (replays ? 1 : 50); ++seed) {
    SCOPED_TRACE("replay with SLUICE_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto between = [&](int64_t least, int64_t most) {
      return std::uniform_int_distribution<int64_t>(least, most)(random);
    };
    std::vector<ClientClaim> clients(between(1, 60));
    ClassDivision division;
    const auto draw = [&](ClientClaim& client) {
      for (ClassClaim& claim : client.classes) claim.demand_bytes = std::max<int64_t>(between(-20'000, 50'000), 0);
    };
    for (ClientClaim& client : clients) {
      client.weight = static_cast<double>(between(1, 8));
      for (size_t i = 0; i < 4; ++i) client.classes.push_back({i, static_cast<double>(between(1, 8))});
      draw(client);
      division.Add(client);
    }
    Parts parts = DivideByClass(kBytes, clients);
    division.Divide(kBytes);
    for (int round = 0; round < 200; ++round) {
      const size_t changed = between(0, std::ssize(clients) - 1);
      division.Remove(clients[changed]);
      draw(clients[changed]);
      division.Add(clients[changed]);
      const bool all = division.Divide(kBytes);
      small_divisions += all ? 0 : 1;
      const Parts now = PartsOf(division, clients);
      for (size_t i = 0; i < clients.size(); ++i) {
        if (all || i == changed) parts[i] = now[i];
      }
    }
    const Parts exact = DivideByClass(kBytes, clients);
    for (size_t i = 0; i < clients.size(); ++i) {
      for (size_t j = 0; j < exact[i].size(); ++j) {
        const auto near = [](int64_t bytes) { return static_cast<double>(bytes) / 8 + 2; };
        EXPECT_NEAR(parts[i][j].bytes, exact[i][j].bytes, near(exact[i][j].bytes));
        EXPECT_NEAR(parts[i][j].fair_bytes, exact[i][j].fair_bytes, near(exact[i][j].fair_bytes));
      }
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(small_divisions, replays ? 0 : 1000);
}

}  // namespace
}  // namespace sluice
