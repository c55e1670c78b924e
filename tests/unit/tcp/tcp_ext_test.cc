#include "lib/tcp/tcp_ext.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

// Reads one counter of the kernel by counting columns, independently of the code under test.
uint64_t KernelCounter(const std::string& file, const std::string& protocol, const std::string& name) {
  std::ifstream lines("/proc/self/net/" + file);
  for (std::string line, column; std::getline(lines, line);) {
    if (line.rfind(protocol + ":", 0) != 0 || (line + " ").find(" " + name + " ") == std::string::npos) continue;
    std::istringstream names(line);
    std::getline(lines, line);
    std::istringstream values(line);
    std::string value;
    while (names >> column && values >> value && column != name) {
    }
    return std::strtoull(value.c_str(), nullptr, 10);
  }
  return 0;
}

uint64_t KernelTcpExt(const std::string& name) {
  return KernelCounter("netstat", "TcpExt", name);
}

TEST(ReadTcpExtTest, SaysWhatTheFilesOfTheKernelSay) {
  struct Case {
    const char* name;
    uint64_t TcpExt::*field;
    std::function<uint64_t()> truth;
  };
  const Case cases[] = {
      {"retransmitted_packets", &TcpExt::retransmitted_packets,
       [] { return KernelCounter("snmp", "Tcp", "RetransSegs"); }},
      {"rtos", &TcpExt::rtos, [] { return KernelTcpExt("TCPTimeouts"); }},
      {"rtos_after_feedback", &TcpExt::rtos_after_feedback,
       [] {
         return KernelTcpExt("TCPSackFailures") + KernelTcpExt("TCPRenoFailures") +
                KernelTcpExt("TCPSackRecoveryFail") + KernelTcpExt("TCPRenoRecoveryFail") +
                KernelTcpExt("TCPLossFailures");
       }},
      {"fast_recoveries", &TcpExt::fast_recoveries,
       [] { return KernelTcpExt("TCPSackRecovery") + KernelTcpExt("TCPRenoRecovery"); }},
      {"lost_retransmits", &TcpExt::lost_retransmits, [] { return KernelTcpExt("TCPLostRetransmit"); }},
      {"spurious_rtos", &TcpExt::spurious_rtos, [] { return KernelTcpExt("TCPSpuriousRTOs"); }},
      {"tail_loss_probes", &TcpExt::tail_loss_probes, [] { return KernelTcpExt("TCPLossProbes"); }},
      {"tail_loss_recoveries", &TcpExt::tail_loss_recoveries, [] { return KernelTcpExt("TCPLossProbeRecovery"); }},
  };
  for (const Case& counter : cases) {
    // Other processes on this machine also change the counter.
    const uint64_t before = counter.truth();
    const auto read = ReadTcpExt();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_GE((*read).*counter.field, before) << counter.name;
    EXPECT_LE((*read).*counter.field, counter.truth()) << counter.name;
  }
}

class MadeUpFilesTest : public ::testing::Test {
 protected:
  MadeUpFilesTest() {
    std::string pattern = ::testing::TempDir() + "/tcp_ext_test-XXXXXX";
    net_ = mkdtemp(pattern.data());
    Write("netstat", "TcpExt: TCPTimeouts\nTcpExt: 1\n");
    Write("snmp", "Tcp: RetransSegs\nTcp: 2\n");
  }
  ~MadeUpFilesTest() override { std::filesystem::remove_all(net_); }

  void Write(const std::string& file, const std::string& text) { std::ofstream(net_ + "/" + file) << text; }
  absl::StatusOr<TcpExt> Read() const { return ReadTcpExt(net_); }
  void ExpectUnavailable(const std::string& file) const {
    const absl::Status status = Read().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(net_ + "/" + file));
  }

  std::string net_;
};

TEST_F(MadeUpFilesTest, AddsUpWhatBelongsTogether) {
  Write("netstat",
        "TcpExt: TCPTimeouts TCPSackFailures TCPRenoFailures TCPSackRecoveryFail TCPRenoRecoveryFail TCPLossFailures "
        "TCPSackRecovery TCPRenoRecovery TCPLostRetransmit TCPSpuriousRTOs TCPLossProbes TCPLossProbeRecovery\n"
        "TcpExt: 1000000 1 20 300 4000 50000 6 70 8 9 10 11\n");
  Write("snmp", "Tcp: RtoAlgorithm MaxConn RetransSegs InErrs\nTcp: 1 -1 12345678901 3\n");
  const auto read = Read();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->retransmitted_packets, 12345678901u);
  EXPECT_EQ(read->rtos, 1000000u);
  EXPECT_EQ(read->rtos_after_feedback, 54321u);
  EXPECT_EQ(read->fast_recoveries, 76u);
  EXPECT_EQ(read->lost_retransmits, 8u);
  EXPECT_EQ(read->spurious_rtos, 9u);
  EXPECT_EQ(read->tail_loss_probes, 10u);
  EXPECT_EQ(read->tail_loss_recoveries, 11u);
}

TEST_F(MadeUpFilesTest, ACounterThatTheKernelDoesNotHaveIsZero) {
  const auto read = Read();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->rtos, 1u);
  EXPECT_EQ(read->retransmitted_packets, 2u);
  EXPECT_EQ(read->rtos_after_feedback, 0u);
  EXPECT_EQ(read->fast_recoveries, 0u);
  EXPECT_EQ(read->tail_loss_probes, 0u);
}

TEST_F(MadeUpFilesTest, FindsTheProtocolWhereverItStands) {
  Write("netstat",
        "IpExt: TCPTimeouts\nIpExt: 77\nTcpExt: TCPLossProbes TCPTimeouts\nTcpExt: 4 5\nMPTcpExt: TCPTimeouts\n"
        "MPTcpExt: 78\n");
  Write("snmp", "Ip: RetransSegs\nIp: 79\nUdp: RetransSegs\nUdp: 80\nTcp: RetransSegs\nTcp: 6\n");
  const auto read = Read();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tail_loss_probes, 4u);
  EXPECT_EQ(read->rtos, 5u);
  EXPECT_EQ(read->retransmitted_packets, 6u);
}

TEST_F(MadeUpFilesTest, NamesTheFileThatIsMissing) {
  std::filesystem::remove(net_ + "/snmp");
  ExpectUnavailable("snmp");
  std::filesystem::remove(net_ + "/netstat");
  ExpectUnavailable("netstat");
}

TEST_F(MadeUpFilesTest, NamesTheFileThatIsNotInTheFormatOfTheKernel) {
  const std::string good = "TcpExt: TCPTimeouts\nTcpExt: 1\n";
  for (const char* bad : {"", "\n\n", "TcpExt: TCPTimeouts\n", "TcpExt: TCPTimeouts\nIpExt: 1\n",
                          "IpExt: a\nIpExt: 1\n", "TcpExt TCPTimeouts\nTcpExt 1\n",
                          "TcpExt: TCPTimeouts\nTcpExt: many\n", "TcpExt: TCPTimeouts TCPLossProbes\nTcpExt: 1\n"}) {
    SCOPED_TRACE(bad);
    Write("netstat", bad);
    ExpectUnavailable("netstat");
  }
  Write("netstat", good);
  ASSERT_TRUE(Read().ok());
  Write("snmp", "Tcp: RetransSegs\nTcp: none\n");
  ExpectUnavailable("snmp");
}

}  // namespace
}  // namespace sluice
