#include "lib/proxy/target_policy.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"

namespace sluice {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;

TargetPolicy Policy(const std::vector<std::string>& patterns) {
  absl::StatusOr<TargetPolicy> policy = TargetPolicy::Create(patterns);
  EXPECT_TRUE(policy.ok()) << policy.status();
  return *std::move(policy);
}

// Checks a target that is an address or a socket, or a name whose look-up returns `address`.
absl::Status Judge(const std::vector<std::string>& patterns, const std::string& target, std::string address = "") {
  const TargetPolicy policy = Policy(patterns);
  absl::Status status = policy.CheckTarget(target);
  if (status.ok()) status = policy.CheckAddress(target, address.empty() ? target : address).status();
  return status;
}

struct Case {
  std::vector<std::string> patterns;
  std::vector<std::string> let_in;
  std::vector<std::string> kept_out;
};

TEST(TargetPolicyTest, EveryFormOfAPatternLetsInWhatItSays) {
  const std::vector<Case> cases = {
      {{"10.0.0.0/8"}, {"10.0.0.1:1", "10.255.255.255:65535"}, {"11.0.0.0:1", "9.255.255.255:1", "[fd00::1]:1"}},
      {{"10.0.0.7/24"}, {"10.0.0.1:1", "10.0.0.255:1"}, {"10.0.1.0:1"}},
      {{"10.0.0.7:7000"}, {"10.0.0.7:7000"}, {"10.0.0.7:7001", "10.0.0.8:7000"}},
      {{"10.0.0.7"}, {"10.0.0.7:7000", "10.0.0.7:1"}, {"10.0.0.8:7000"}},
      {{"fd00::/8"}, {"[fd00::1]:1", "[fdff::1]:1"}, {"[fc00::1]:1", "10.0.0.1:1"}},
      {{"[fd00::7]:7000"}, {"[fd00::7]:7000", "[fd00:0::7]:7000"}, {"[fd00::7]:1", "[fd00::8]:7000"}},
      {{"[fd00::7]"}, {"[fd00::7]:7000"}, {"[fd00::8]:7000"}},
      {{"fd00::7"}, {"[fd00::7]:7000", "[fd00::7]:1"}, {"[fd00::8]:7000"}},
      {{"private"},
       {"10.1.2.3:1", "172.16.0.1:1", "172.31.255.255:1", "192.168.1.1:1", "100.64.0.1:1", "[fd00::1]:1",
        "[fc00::1]:1"},
       {"172.32.0.1:1", "100.128.0.1:1", "8.8.8.8:53", "[2001:db8::1]:1"}},
      {{}, {"10.1.2.3:1", "[fd00::1]:1"}, {"8.8.8.8:53"}},
      {{"8.8.8.8", "10.0.0.0/8"}, {"8.8.8.8:1", "10.1.1.1:1"}, {"8.8.4.4:1"}},
      {{"bytes:10.0.0.0/8"}, {"10.0.0.1:1"}, {"11.0.0.0:1"}},
  };
  for (const Case& rule : cases) {
    for (const std::string& target : rule.let_in) EXPECT_TRUE(Judge(rule.patterns, target).ok()) << target;
    for (const std::string& target : rule.kept_out) {
      EXPECT_THAT(Judge(rule.patterns, target), HasCode(absl::StatusCode::kPermissionDenied)) << target;
    }
  }
}

TEST(TargetPolicyTest, APatternMaySayThatTunnelsCarryOnlyBytes) {
  const TargetPolicy policy = Policy({"10.0.0.0/8", "bytes:10.0.0.7:8080", "bytes:*.web.svc", "bytes:unix:/run/web/*"});
  EXPECT_TRUE(policy.AnyCarriesBytes());
  EXPECT_TRUE(policy.CarriesBytes("10.0.0.7:8080", "10.0.0.7:8080"));
  EXPECT_TRUE(policy.CarriesBytes("name:8080", "10.0.0.7:8080")) << "by the address of a name";
  EXPECT_TRUE(policy.CarriesBytes("a.web.svc:1", "10.0.0.9:1"));
  EXPECT_TRUE(policy.CarriesBytes("unix:/run/web/a", "unix:/run/web/a"));
  EXPECT_FALSE(policy.CarriesBytes("10.0.0.7:7000", "10.0.0.7:7000"));
  EXPECT_FALSE(policy.CarriesBytes("a.svc:8080", "10.0.0.8:8080"));
  EXPECT_FALSE(Policy({"10.0.0.0/8"}).AnyCarriesBytes());
  for (const char* wrong : {"bytes:", "bytes:bytes:10.0.0.7", "bytes:10.0.0.7:0"}) {
    EXPECT_THAT(TargetPolicy::Create({std::string(wrong)}).status(), HasCode(absl::StatusCode::kInvalidArgument))
        << wrong;
  }
}

TEST(TargetPolicyTest, AnAddressWithinAnAddressIsJudgedToo) {
  EXPECT_TRUE(Judge({"10.0.0.0/8"}, "[64:ff9b::10.1.2.3]:1").ok());
  EXPECT_TRUE(Judge({"10.0.0.7:7000"}, "[2002:a00:7::]:7000").ok());
  EXPECT_TRUE(Judge({"64:ff9b::/96"}, "[64:ff9b::8.8.8.8]:1").ok()) << "by the network of a translator";
  EXPECT_THAT(Judge({"10.0.0.0/8"}, "[64:ff9b::8.8.8.8]:1"), HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Judge({"10.0.0.0/8"}, "[fd00::10.1.2.3]:1"), HasCode(absl::StatusCode::kPermissionDenied));
}

TEST(TargetPolicyTest, NamesMatchWithoutCaseAndFinalDot) {
  const std::vector<Case> cases = {
      {{"*.workers.svc:7000"},
       {"w-1.workers.svc:7000", "a.b.workers.svc:7000", "W-1.Workers.SVC:7000"},
       {"w-1.workers.svc:7001", "workers.svc:7000", "w-1.workers.svc.evil.com:7000"}},
      {{"shard-*"}, {"shard-1:1", "shard-:2", "shard-x.anywhere:3"}, {"a-shard-1:1"}},
      {{"db"}, {"db:1", "DB:65535"}, {"db2:1", "d:1"}},
      {{"*.svc"}, {"a.svc.:1", "A.SVC.:1"}, {"a.svc..:1"}},
      {{"a.svc.:7000"}, {"a.svc:7000", "a.svc.:7000"}, {"a.svc.:1"}},
      {{"[::1]:1", "db.:1"}, {"db:1"}, {".:1"}},
  };
  for (const Case& rule : cases) {
    for (const std::string& name : rule.let_in) EXPECT_TRUE(Judge(rule.patterns, name, "8.8.8.8:1").ok()) << name;
    for (const std::string& name : rule.kept_out) {
      EXPECT_THAT(Judge(rule.patterns, name, "8.8.8.8:1"), HasCode(absl::StatusCode::kPermissionDenied)) << name;
    }
  }
}

TEST(TargetPolicyTest, ANameOfNoPatternIsJudgedByItsAddresses) {
  const TargetPolicy policy = Policy({"10.0.0.0/8"});
  EXPECT_TRUE(policy.CheckTarget("anything.at.all:7000").ok()) << "before the look-up";
  EXPECT_EQ(*policy.CheckAddress("anything.at.all:7000", "10.1.2.3:7000"), "10.0.0.0/8");
  EXPECT_THAT(policy.CheckAddress("anything.at.all:7000", "8.8.8.8:7000").status(),
              HasCode(absl::StatusCode::kPermissionDenied));
  // If each pattern has a port, a name with a different port is not looked up.
  EXPECT_THAT(Policy({"10.0.0.7:7000"}).CheckTarget("name:7001"), HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_TRUE(Policy({"10.0.0.7:7000"}).CheckTarget("name:7000").ok());
  // If all patterns are names, no other name is looked up.
  EXPECT_THAT(Policy({"*.svc"}).CheckTarget("name:7001"), HasCode(absl::StatusCode::kPermissionDenied));
}

TEST(TargetPolicyTest, SaysWhichPatternLetIn) {
  const TargetPolicy policy = Policy({"*.svc", "private", "10.0.0.7"});
  EXPECT_EQ(*policy.CheckAddress("a.svc:1", "8.8.8.8:1"), "*.svc");
  EXPECT_EQ(*policy.CheckAddress("10.0.0.7:1", "10.0.0.7:1"), "private") << "the first";
}

TEST(TargetPolicyTest, SomeAddressesAreNeverWorkers) {
  const std::vector<std::string> all = {"0.0.0.0/0", "::/0", "*"};
  for (const char* address : {"169.254.169.254:80",
                              "169.254.0.1:1",
                              "[fe80::1]:1",
                              "[::ffff:169.254.169.254]:80",
                              "100.100.100.200:80",
                              "192.0.0.192:80",
                              "168.63.129.16:80",
                              "169.254.170.23:80",
                              "[fd00:ec2::254]:80",
                              "[fd00:ec2::23]:80",
                              "[fd20:ce::254]:80",
                              "[fd00:c1::a9fe:a9fe]:80",
                              "[fd00:42::42]:80",
                              "[::ffff:100.100.100.200]:80",
                              "0.0.0.0:1",
                              "[::]:1",
                              "224.0.0.1:1",
                              "[ff02::1]:1",
                              "255.255.255.255:1",
                              "[::ffff:0.0.0.0]:1",
                              "[fd00:ec2::254%1]:80",
                              "[fd00:ec2:0::254%lo]:80",
                              "[fd20:ce::254%7]:80",
                              "[::ffff:169.254.169.254%1]:80",
                              "[64:ff9b::169.254.169.254]:80",
                              "[64:ff9b:1::169.254.169.254]:80",
                              "[64:ff9b:1:7:8::a9fe:a9fe]:80",
                              "[2002:a9fe:a9fe::1]:80",
                              "[::169.254.169.254]:80",
                              "[64:ff9b::100.100.100.200]:80",
                              "[fe80::1%1]:1",
                              "[::%1]:1"}) {
    const absl::Status literal = Judge(all, address);
    EXPECT_THAT(literal, HasCode(absl::StatusCode::kPermissionDenied)) << address;
    EXPECT_THAT(std::string(literal.message()), HasSubstr("never a worker"));
    EXPECT_THAT(Judge(all, "friendly.name:80", address), HasCode(absl::StatusCode::kPermissionDenied)) << address;
    EXPECT_THAT(Judge({"friendly.name"}, "friendly.name:80", address), HasCode(absl::StatusCode::kPermissionDenied));
    EXPECT_THAT(TargetPolicy::Create({})->CheckPassed(address), HasCode(absl::StatusCode::kPermissionDenied))
        << address;
  }
}

TEST(TargetPolicyTest, LoopbackNeedsAPatternOfItsOwn) {
  for (const char* address : {"127.0.0.1:1", "127.255.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1",
                              "[64:ff9b::127.0.0.1]:1", "[2002:7f00:1::]:1", "[::127.0.0.1]:1"}) {
    for (const char* pattern : {"0.0.0.0/0", "::/0", "*", "private", "126.0.0.0/7", "::/64"}) {
      EXPECT_THAT(Judge({pattern}, address), HasCode(absl::StatusCode::kPermissionDenied)) << pattern << " " << address;
      EXPECT_THAT(Judge({pattern, "name"}, "name:1", address), HasCode(absl::StatusCode::kPermissionDenied))
          << pattern << " " << address;
    }
    EXPECT_THAT(TargetPolicy::Create({})->CheckPassed(address), HasCode(absl::StatusCode::kPermissionDenied))
        << address;
  }
  EXPECT_THAT(Judge({"::1/8"}, "[::1]:1"), HasCode(absl::StatusCode::kPermissionDenied)) << "more than loopback";
  EXPECT_TRUE(Judge({"127.0.0.0/8"}, "127.0.0.1:1").ok());
  EXPECT_TRUE(Judge({"127.0.0.1"}, "127.0.0.1:1").ok());
  EXPECT_FALSE(Judge({"127.0.0.1"}, "127.0.0.2:1").ok());
  EXPECT_TRUE(Judge({"127.0.0.1:7000"}, "[::ffff:127.0.0.1]:7000").ok()) << "the same place";
  EXPECT_TRUE(Judge({"::1"}, "[::1]:1").ok());
  EXPECT_TRUE(Judge({"localhost"}, "localhost:1", "127.0.0.1:1").ok());
  EXPECT_TRUE(Judge({"localhost:7000"}, "localhost:7000", "[::1]:7000").ok());
  EXPECT_FALSE(Judge({"localhost:7000"}, "localhost:7001", "127.0.0.1:7001").ok());
  EXPECT_FALSE(Judge({"local*"}, "localhost:1", "127.0.0.1:1").ok()) << "has more than loopback in it";
  EXPECT_TRUE(Judge({"127.0.0.0/8"}, "any.name:1", "127.0.0.1:1").ok());
}

// Text that only getaddrinfo reads as an address is a name here, and its addresses are checked.
TEST(TargetPolicyTest, AnAddressInAnotherNotationIsAName) {
  for (const char* target : {"2130706433:1", "0x7f000001:1", "127.1:1", "0177.0.0.1:1"}) {
    EXPECT_THAT(Judge({"*", "0.0.0.0/0"}, target, "127.0.0.1:1"), HasCode(absl::StatusCode::kPermissionDenied))
        << target;
  }
}

TEST(TargetPolicyTest, AMappedAddressIsTheOneThatItStandsFor) {
  EXPECT_TRUE(Judge({"10.0.0.0/8"}, "[::ffff:10.0.0.1]:1").ok());
  EXPECT_TRUE(Judge({"[::ffff:10.0.0.1]:1"}, "10.0.0.1:1").ok());
  EXPECT_FALSE(Judge({"::/0"}, "[::ffff:10.0.0.1]:1").ok()) << "it is no IPv6 address";
}

// The kernel uses only the zone of link-local addresses.
TEST(TargetPolicyTest, AZoneMakesNoOtherAddress) {
  EXPECT_TRUE(Judge({"fd00::/8"}, "[fd00::7%1]:1").ok());
  EXPECT_TRUE(Judge({"fd00::7%3"}, "[fd00::7]:1").ok());
  EXPECT_THAT(Judge({"::/0"}, "[::1%1]:1"), HasCode(absl::StatusCode::kPermissionDenied)) << "loopback";
  EXPECT_THAT(TargetPolicy::Create({})->CheckPassed("[::1%1]:1"), HasCode(absl::StatusCode::kPermissionDenied));
}

TEST(TargetPolicyTest, UnixSocketsNeedAPatternForUnixSockets) {
  EXPECT_TRUE(Judge({"unix:/run/workers/*"}, "unix:/run/workers/a").ok());
  EXPECT_TRUE(Judge({"unix:/run/a.sock"}, "unix:/run/a.sock").ok());
  EXPECT_TRUE(Judge({"unix-abstract:w-*"}, "unix-abstract:w-1").ok());
  for (const char* target : {"unix:/run/docker.sock", "unix:/run/workers", "unix-abstract:/run/workers/a"}) {
    EXPECT_THAT(Judge({"unix:/run/workers/*"}, target), HasCode(absl::StatusCode::kPermissionDenied)) << target;
  }
  for (const char* pattern : {"*", "*.sock", "*run*", "0.0.0.0/0", "private", "localhost"}) {
    EXPECT_THAT(Judge({pattern}, "unix:/run/docker.sock"), HasCode(absl::StatusCode::kPermissionDenied)) << pattern;
  }
}

TEST(TargetPolicyTest, APathDoesNotLeaveItsFolder) {
  for (const char* target : {"unix:/run/workers/../docker.sock", "unix:/run/workers/a/../../docker.sock",
                             "unix:/run/workers/..", "unix:/run/Workers/a", "unix:///run/workers/../docker.sock"}) {
    EXPECT_THAT(Judge({"unix:/run/workers/*"}, target), HasCode(absl::StatusCode::kPermissionDenied)) << target;
  }
  EXPECT_TRUE(Judge({"unix:/run/workers/*"}, "unix:/run/workers/a..b").ok());
}

TEST(TargetPolicyTest, WhatIsNoTargetIsSaidSo) {
  for (const char* target : {"", "name", "10.0.0.1", ":80", "*:80", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:x",
                             "fd00::1:80", "unix:", "http://10.0.0.1:80"}) {
    EXPECT_THAT(Judge({"0.0.0.0/0", "*"}, target), HasCode(absl::StatusCode::kInvalidArgument)) << target;
  }
  for (const char* target : {"na\nme:80", "na\"me:80", "dns:///a:80", "user@host:80"}) {
    EXPECT_FALSE(Judge({"0.0.0.0/0", "*"}, target).ok()) << target;
  }
  const absl::Status denied = Policy({"10.0.0.0/8"}).CheckTarget(absl::StrCat(std::string(5000, 'x'), "\n:80"));
  EXPECT_LT(denied.message().size(), 300U) << "it goes into a header";
  EXPECT_THAT(std::string(denied.message()), ::testing::Not(HasSubstr("\n")));
}

TEST(TargetPolicyTest, APatternThatIsNoneIsNamed) {
  for (const char* pattern : {"", "10.0.0.0/33", "fd00::/129", "a b", "10.0.0.0/8:80", "name:0", "name:65536",
                              "name:port", "[fd00::1", "[name]:80x", "na/me", "?ame"}) {
    const absl::Status refused = TargetPolicy::Create({std::string("private"), std::string(pattern)}).status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument)) << pattern;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat("workers: \"", pattern, "\"")));
  }
}

// In any notation, and by any pattern that matches it.
TEST(TargetPolicyTest, TheProxyItselfIsNeverAWorker) {
  TargetPolicy policy = *TargetPolicy::Create({"0.0.0.0/0", "127.0.0.0/8", "::1", "*", "unix:*"});
  policy.SetOwnAddresses({"127.0.0.1:7400", "8.8.8.8:7400", "[::1]:7400", "[fd00::7]:7400", "unix:/run/s"}, {});
  for (const char* own : {"127.0.0.1:7400", "[::ffff:127.0.0.1]:7400", "[0:0::1]:7400", "[::1%1]:7400", "8.8.8.8:7400",
                          "[fd00::7%2]:7400", "unix:/run/s"}) {
    const absl::Status refused = policy.CheckAddress(own, own).status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kPermissionDenied)) << own;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("is this proxy"));
  }
  EXPECT_THAT(policy.CheckTarget("127.0.0.1:7400"), HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(policy.CheckAddress("a.name:7400", "127.0.0.1:7400").status(),
              HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(policy.CheckAddress("a.name:7400", "[fd00::7%1]:7400").status(),
              HasCode(absl::StatusCode::kPermissionDenied));
  for (const char* own : {"8.8.8.8:7400", "[fd00::7]:7400", "[fd00::7%1]:7400"}) {
    EXPECT_THAT(policy.CheckPassed(own), HasCode(absl::StatusCode::kPermissionDenied)) << own;
  }
  for (const char* other : {"127.0.0.1:7401", "127.0.0.2:7400", "unix:/run/t"}) {
    EXPECT_TRUE(policy.CheckAddress(other, other).ok()) << other;
  }
}

TEST(TargetPolicyTest, AllOfLoopbackLeadsToAListenerOnAllAddresses) {
  TargetPolicy policy = *TargetPolicy::Create({"127.0.0.0/8", "::1"});
  for (const char* own : {"0.0.0.0:7400", "[::]:7400"}) {
    policy.SetOwnAddresses({own}, {});
    EXPECT_THAT(policy.CheckTarget("127.0.0.2:7400"), HasCode(absl::StatusCode::kPermissionDenied)) << own;
    EXPECT_THAT(policy.CheckTarget("[::ffff:127.9.9.9]:7400"), HasCode(absl::StatusCode::kPermissionDenied)) << own;
    EXPECT_TRUE(policy.CheckTarget("127.0.0.2:7401").ok());
  }
}

// Clients of other hosts may connect to the proxy. Other services of its host are not for them.
TEST(TargetPolicyTest, TheHostOfTheProxyNeedsAPatternOfItsOwn) {
  const auto check = [](const std::string& pattern) {
    TargetPolicy policy = *TargetPolicy::Create({pattern});
    policy.SetOwnAddresses({"0.0.0.0:9103"}, {"10.0.0.5", "127.0.0.1", "fd00::5"});
    EXPECT_TRUE(policy.CheckTarget("10.0.0.5:9103").code() == absl::StatusCode::kPermissionDenied) << "the admin port";
    return policy.CheckAddress("10.0.0.5:22", "10.0.0.5:22").status();
  };
  for (const char* wide : {"private", "10.0.0.0/8", "0.0.0.0/0"}) {
    const absl::Status refused = check(wide);
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kPermissionDenied)) << wide;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("is an address of the proxy's host"));
  }
  for (const char* own : {"10.0.0.5", "10.0.0.5:22", "10.0.0.5/32"}) EXPECT_TRUE(check(own).ok()) << own;
  TargetPolicy by_name = *TargetPolicy::Create({"*.svc"});
  by_name.SetOwnAddresses({}, {"10.0.0.5"});
  EXPECT_TRUE(by_name.CheckAddress("a.svc:22", "10.0.0.5:22").ok());
}

TEST(TargetPolicyTest, TunnelsOfOtherHostsNeedAPatternWithAPort) {
  const auto check = [](const std::vector<std::string>& patterns, const std::string& target) {
    return TargetPolicy::Create(patterns)->CheckAddress(target, "10.0.0.7:443", /*needs_port=*/true).status();
  };
  EXPECT_TRUE(check({"10.0.0.7:443"}, "10.0.0.7:443").ok());
  EXPECT_TRUE(check({"private", "a.svc:443"}, "a.svc:443").ok());
  const absl::Status refused = check({"private", "a.svc:443"}, "b.svc:443");
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("only by the pattern private, which has no port"));
}

TEST(TargetPolicyTest, OtherAddressesMayBePassedOnTo) {
  for (const char* address : {"8.8.8.8:53", "10.0.0.1:1", "[2001:db8::1]:443"}) {
    EXPECT_TRUE(TargetPolicy::Create({})->CheckPassed(address).ok()) << address;
  }
  for (const char* address : {"unix:/run/a", "name:80", "", "10.0.0.1"})
    EXPECT_FALSE(TargetPolicy::Create({})->CheckPassed(address).ok());
}

}  // namespace
}  // namespace sluice
