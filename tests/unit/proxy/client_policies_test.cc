#include "lib/proxy/client_policies.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"

namespace sluice {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;

constexpr char kFirst[] = "10.1.0.1:7000";
constexpr char kSecond[] = "10.2.0.1:7000";
constexpr char kOther[] = "10.3.0.1:7000";

ClientPolicies Policies() {
  return *ClientPolicies::Create(
      {std::string("10.3.0.0/16")},
      {ClientPolicies::Group{.users = {7, 8}, .names = {"front"}, .workers = {"10.1.0.0/16"}},
       ClientPolicies::Group{.users = {9}, .names = {"back", "side"}, .workers = {"10.2.0.0/16"}}});
}

// Returns the one target of the three that such a client may call.
std::string Allowed(const ClientPolicies& policies, std::optional<uint32_t> user, const std::string& name) {
  const auto has_one_of = [&](absl::Span<const std::string> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const TargetPolicy& found = policies.Find(user, has_one_of).workers;
  std::string allowed;
  for (const char* target : {kFirst, kSecond, kOther}) {
    if (found.CheckTarget(target).ok()) allowed += target;
  }
  return allowed;
}

TEST(ClientPoliciesTest, AClientHasThePolicyOfItsGroup) {
  const ClientPolicies policies = Policies();
  EXPECT_EQ(Allowed(policies, 7, ""), kFirst);
  EXPECT_EQ(Allowed(policies, 8, ""), kFirst);
  EXPECT_EQ(Allowed(policies, 9, ""), kSecond);
  EXPECT_EQ(Allowed(policies, 10, ""), kOther);
  EXPECT_EQ(Allowed(policies, std::nullopt, "front"), kFirst);
  EXPECT_EQ(Allowed(policies, std::nullopt, "side"), kSecond);
  EXPECT_EQ(Allowed(policies, std::nullopt, "another"), kOther);
  EXPECT_EQ(Allowed(policies, std::nullopt, ""), kOther);
}

TEST(ClientPoliciesTest, TheFirstGroupCounts) {
  EXPECT_EQ(Allowed(Policies(), 9, "front"), kFirst);
}

TEST(ClientPoliciesTest, WithoutGroupsAllAreTheSame) {
  const auto policies = ClientPolicies::Create({}, {});
  ASSERT_TRUE(policies.ok());
  EXPECT_EQ(Allowed(*policies, 7, "front"), std::string(kFirst) + kSecond + kOther) << "all that are private";
}

TEST(ClientPoliciesTest, TheProxysOwnAddressesAreOutOfReachForAll) {
  ClientPolicies policies = Policies();
  policies.SetOwnAddresses({std::string(kFirst), std::string(kSecond), std::string(kOther)}, {});
  for (const uint32_t user : {7, 9, 10}) EXPECT_EQ(Allowed(policies, user, ""), "");
}

TEST(ClientPoliciesTest, WhatIsWrongIsNamed) {
  using Group = ClientPolicies::Group;
  const Group good{.users = {7}, .names = {"front"}, .workers = {"10.0.0.0/8"}};
  const auto expect = [&](const Group& second, const std::string& why) {
    const absl::Status refused = ClientPolicies::Create({}, {good, second}).status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(why));
  };
  expect({.users = {}, .names = {}, .workers = {"10.0.0.0/8"}}, "clients[1] names no clients; give uids or names");
  expect({.users = {8}, .names = {}, .workers = {}}, "clients[1].workers is empty; give the workers");
  expect({.users = {8}, .names = {}, .workers = {"10.0.0.0/99"}}, "clients[1].workers: \"10.0.0.0/99\"");
  expect({.users = {8, 7}, .names = {}, .workers = {"10.0.0.0/8"}}, "clients[1].uids: 7 is given twice");
  expect({.users = {}, .names = {"Front"}, .workers = {"10.0.0.0/8"}}, "clients[1].names: \"Front\" is given twice");
  expect({.users = {}, .names = {"a b"}, .workers = {"10.0.0.0/8"}}, "clients[1].names: \"a b\" is not 1 to 2048");
  EXPECT_THAT(std::string(ClientPolicies::Create({std::string("10.0.0.0/99")}, {good}).status().message()),
              HasSubstr("workers: \"10.0.0.0/99\""));
}

}  // namespace
}  // namespace sluice
