#include "lib/net/worker_address.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(WorkerAddressTest, AcceptsEveryForm) {
  for (const char* address :
       {"10.0.0.1:1", "worker-7.example.org:65535", "localhost:50051", "[::1]:80", "[fe80::1%lo]:80", "unix:/run/w",
        "unix:w", "unix:///run/w", "unix-abstract:w", "dns:///w:1", "dns:w:1", "dns:10.0.0.1:1", "ipv4:127.0.0.1:1",
        "ipv6:[::1]:1", "ipv4:10.0.0.1:1,10.0.0.2:1"}) {
    EXPECT_TRUE(ValidateWorkerAddress(address).ok()) << address << ": " << ValidateWorkerAddress(address);
  }
}

TEST(WorkerAddressTest, TheFamilyOfTheFirstComesFirst) {
  const auto sorted = [](std::vector<WorkerAddress> addresses, size_t of_family) {
    EXPECT_EQ(SortByFamily(addresses), of_family);
    std::vector<std::string> texts;
    for (const WorkerAddress& address : addresses) texts.push_back(address.text);
    return texts;
  };
  EXPECT_THAT(sorted({{"10.0.0.2:1"}, {"[::2]:1"}, {"10.0.0.1:1"}, {"[::1]:1"}}, 2),
              ElementsAre("10.0.0.1:1", "10.0.0.2:1", "[::1]:1", "[::2]:1"));
  EXPECT_THAT(sorted({{"[::2]:1"}, {"10.0.0.1:1"}}, 1), ElementsAre("[::2]:1", "10.0.0.1:1"));
  EXPECT_THAT(sorted({}, 0), IsEmpty());
}

TEST(WorkerAddressTest, RefusesWhatIsNotAnAddressAndQuotesIt) {
  for (const std::string& address : {std::string(),
                                     std::string(":"),
                                     std::string(":80"),
                                     std::string("*:80"),
                                     std::string("host"),
                                     std::string("host:"),
                                     std::string("host:0"),
                                     std::string("host:65536"),
                                     std::string("host:-1"),
                                     std::string("host:http"),
                                     std::string("host:80x"),
                                     std::string("host:99999999999999"),
                                     std::string("host: 80"),
                                     std::string("host:+80"),
                                     std::string(" host:80"),
                                     std::string("host:80 "),
                                     std::string("a b:80"),
                                     std::string("::1:80"),
                                     std::string("[host]:x"),
                                     std::string("[a:b]:80"),
                                     std::string("unix:"),
                                     std::string("unix-abstract:"),
                                     std::string("dns:"),
                                     std::string("dns:///w"),
                                     std::string("dns:///"),
                                     std::string("dns://8.8.8.8/w:1"),
                                     std::string("ipv4:"),
                                     std::string("ipv4:w:1"),
                                     std::string("ipv4:[::1]:1"),
                                     std::string("ipv4:10.0.0.1"),
                                     std::string("ipv4:10.0.0.1:1,"),
                                     std::string("ipv6:10.0.0.1:1"),
                                     "unix:" + std::string(108, 'x'),
                                     "unix-abstract:" + std::string(108, 'x'),
                                     std::string("unix:a\0b", 8)}) {
    const absl::Status status = ValidateWorkerAddress(address);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("\"", address, "\"")));
  }
}

TEST(WorkerAddressTest, KnowsAddressesWithoutALookUp) {
  const auto addresses = [](const char* text) { return ParseWorkerTarget(text)->addresses; };
  EXPECT_THAT(addresses("10.0.0.1:7000"), ElementsAre(WorkerAddress{"10.0.0.1:7000"}));
  EXPECT_THAT(addresses("[0:0::1]:7000"), ElementsAre(WorkerAddress{"[::1]:7000"}));
  EXPECT_THAT(addresses("dns:///10.0.0.1:7000"), ElementsAre(WorkerAddress{"10.0.0.1:7000"}));
  EXPECT_THAT(addresses("ipv4:10.0.0.1:7000,10.0.0.2:7001"),
              ElementsAre(WorkerAddress{"10.0.0.1:7000"}, WorkerAddress{"10.0.0.2:7001"}));
  EXPECT_THAT(addresses("ipv6:[::1]:7000"), ElementsAre(WorkerAddress{"[::1]:7000"}));
  EXPECT_THAT(addresses("unix:run/w"), ElementsAre(WorkerAddress{"unix:run/w"}));
  EXPECT_THAT(addresses("unix:///run/w"), ElementsAre(WorkerAddress{"unix:/run/w"}));
  EXPECT_THAT(addresses("unix-abstract:w"), ElementsAre(WorkerAddress{"unix-abstract:w"}));
  EXPECT_THAT(addresses("w:7000"), IsEmpty());
}

TEST(WorkerAddressTest, TellsTheHostThatACertificateIsFor) {
  const auto host = [](const char* text) { return ParseWorkerTarget(text)->host; };
  EXPECT_EQ(host("w-7.example:7000"), "w-7.example");
  EXPECT_EQ(host("dns:///w-7.example:7000"), "w-7.example");
  EXPECT_EQ(host("[::1]:7000"), "::1");
  EXPECT_EQ(host("ipv4:10.0.0.1:7000,10.0.0.2:7001"), "10.0.0.1");
  EXPECT_EQ(host("unix:/run/w"), "localhost");
  EXPECT_EQ(ParseWorkerTarget("w:7000")->port, 7000);
}

}  // namespace
}  // namespace sluice
