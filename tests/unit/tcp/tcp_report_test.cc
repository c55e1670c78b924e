#include "lib/tcp/tcp_report.h"

#include <atomic>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "lib/tcp/peer_name.h"

namespace sluice {
namespace {

TEST(TcpReportTextTest, SaysPortRetransmissionsAndTimeouts) {
  EXPECT_EQ(FormatTcpReport({.port = 51234, .retransmits = 7, .rtos = 1}), "51234 7 1");
}

TEST(TcpReportTextTest, IsReadAsItWasWritten) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  for (const TcpReport& report : {TcpReport{}, TcpReport{1, 2, 3}, TcpReport{65535, kMost, kMost}}) {
    EXPECT_EQ(ParseTcpReport(FormatTcpReport(report)), report);
  }
}

TEST(TcpReportTextTest, IsNoneOfAnythingElse) {
  for (const char* text : {"", " ", "51234", "51234 7", "51234 7 1 2", "51234  7 1", " 51234 7 1", "51234 7 1 ",
                           "51234,7,1", "65536 7 1", "-1 7 1", "51234 -7 1", "51234 7 -1", "port 7 1", "51234 7 x",
                           "51234 7.5 1", "51234 0x7 1", "51234 7 18446744073709551616", "99999999999999999999 7 1"}) {
    EXPECT_EQ(ParseTcpReport(text), std::nullopt) << text;
  }
}

constexpr char kPeer[] = "ipv4:10.0.0.1:51234";
constexpr char kOther[] = "ipv4:10.0.0.1:51235";

TcpSocket Connection(const std::string& peer, uint32_t retransmits, std::optional<uint16_t> rtos = 0) {
  return {.remote = *ParsePeerName(peer), .info = {.retransmitted_packets = retransmits, .rtos = rtos}};
}

class TcpReportsTest : public ::testing::Test {
 protected:
  std::optional<TcpReport> Take(const std::string& peer) {
    return reports_.Take([&] {
      ++names_;
      return peer;
    });
  }

  TcpReports reports_;
  int names_ = 0;  // calls of the peer-name function
};

TEST_F(TcpReportsTest, NothingIsReportedWhileNothingIsLost) {
  EXPECT_EQ(Take(kPeer), std::nullopt);
  reports_.Update({Connection(kPeer, 0), Connection(kOther, 0)});
  EXPECT_EQ(Take(kPeer), std::nullopt);
  EXPECT_EQ(names_, 0) << "gRPC makes a name each time that it is asked for";
}

TEST_F(TcpReportsTest, ALossIsReportedOnce) {
  reports_.Update({Connection(kPeer, 7, 1)});
  EXPECT_EQ(Take(kPeer), (TcpReport{51234, 7, 1}));
  EXPECT_EQ(Take(kPeer), std::nullopt);
  reports_.Update({Connection(kPeer, 7, 1)});
  names_ = 0;
  EXPECT_EQ(Take(kPeer), std::nullopt);
  EXPECT_EQ(names_, 0) << "nothing is due";
}

TEST_F(TcpReportsTest, TheNextLossIsReportedWithAllBeforeIt) {
  reports_.Update({Connection(kPeer, 7, 1)});
  EXPECT_EQ(Take(kPeer), (TcpReport{51234, 7, 1}));
  reports_.Update({Connection(kPeer, 9, 1)});
  reports_.Update({Connection(kPeer, 12, 2)});
  EXPECT_EQ(Take(kPeer), (TcpReport{51234, 12, 2}));
  EXPECT_EQ(Take(kPeer), std::nullopt);
}

TEST_F(TcpReportsTest, EachConnectionIsReportedToItsOwnPeer) {
  reports_.Update({Connection(kPeer, 7), Connection(kOther, 8), Connection("ipv4:10.0.0.2:51234", 0)});
  EXPECT_EQ(Take("ipv4:10.0.0.2:51234"), std::nullopt) << "lost nothing";
  EXPECT_EQ(Take("ipv4:10.0.0.3:51234"), std::nullopt) << "is not connected";
  EXPECT_EQ(Take(kOther), (TcpReport{51235, 8, 0}));
  EXPECT_EQ(Take(kPeer), (TcpReport{51234, 7, 0}));
  EXPECT_EQ(Take(kOther), std::nullopt);
}

TEST_F(TcpReportsTest, FindsPeersByEveryNameThatGrpcHasForThem) {
  reports_.Update(
      {Connection("ipv6:[2001:db8::1]:1", 3), Connection("ipv6:[2001:db8::2]:2", 4), Connection("ipv4:10.0.0.9:3", 5)});
  EXPECT_EQ(Take("ipv6:[2001:db8::1]:1"), (TcpReport{1, 3, 0}));
  EXPECT_EQ(Take("ipv6:%5B2001:db8::2%5D:2"), (TcpReport{2, 4, 0}));
  EXPECT_EQ(Take("ipv6:%5B::ffff:10.0.0.9%5D:3"), (TcpReport{3, 5, 0}));
}

TEST_F(TcpReportsTest, PeersThatAreNotTcpGetNone) {
  reports_.Update({Connection(kPeer, 7)});
  for (const char* peer : {"", "unix:", "unix:/run/worker", "unknown"}) EXPECT_EQ(Take(peer), std::nullopt) << peer;
  EXPECT_TRUE(Take(kPeer).has_value());
}

TEST_F(TcpReportsTest, AConnectionThatIsGoneIsForgotten) {
  reports_.Update({Connection(kPeer, 7)});
  reports_.Update({});
  EXPECT_EQ(Take(kPeer), std::nullopt);
  reports_.Update({Connection(kPeer, 7)});  // a new connection from the same port
  EXPECT_EQ(Take(kPeer), (TcpReport{51234, 7, 0}));
}

TEST_F(TcpReportsTest, TimeoutsAreZeroWhereTheKernelTellsOfNone) {
  reports_.Update({Connection(kPeer, 7, std::nullopt)});
  EXPECT_EQ(Take(kPeer), (TcpReport{51234, 7, 0}));
}

TEST_F(TcpReportsTest, ManyThreadsReportEachLossOnce) {
  constexpr uint32_t kLosses = 200;
  std::atomic<bool> done = false;
  std::atomic<uint64_t> last = 0;
  std::atomic<uint64_t> reported = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!done) {
        const std::optional<TcpReport> report = reports_.Take([] { return std::string(kPeer); });
        if (!report.has_value()) continue;
        ++reported;
        uint64_t before = last;
        while (before < report->retransmits && !last.compare_exchange_weak(before, report->retransmits)) {
        }
      }
    });
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (uint32_t losses = 1; losses <= kLosses; ++losses) {
    reports_.Update({Connection(kPeer, losses)});
    while (last < losses && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(last, kLosses);
  EXPECT_EQ(reported, kLosses);
}

}  // namespace
}  // namespace sluice
