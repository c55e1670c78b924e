#include "lib/telemetry/process_metrics.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace sluice {
namespace {

std::map<std::string, double> Values(const ProcessMetrics& metrics) {
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    const bool is_counter = family.type == prometheus::MetricType::Counter;
    values[family.name] = is_counter ? family.metric[0].counter.value : family.metric[0].gauge.value;
  }
  return values;
}

TEST(ProcessMetricsTest, ReadsThisProcess) {
  const auto values = Values(ProcessMetrics());
  EXPECT_GE(values.at("process_cpu_seconds_total"), 0);
  EXPECT_GT(values.at("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(values.at("process_open_fds"), 3);
  // The start time is in the past, and after the clock of any machine that builds this.
  EXPECT_GT(values.at("process_start_time_seconds"), 1.5e9);
  EXPECT_LE(values.at("process_start_time_seconds"), static_cast<double>(std::time(nullptr)) + 1);
}

TEST(ProcessMetricsTest, CountsAFileThatIsOpened) {
  const double before = Values(ProcessMetrics()).at("process_open_fds");
  const int fd = open("/dev/null", O_RDONLY);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(Values(ProcessMetrics()).at("process_open_fds"), before + 1);
  close(fd);
}

TEST(ProcessMetricsTest, ReadsTheFieldsOfProcBehindAnyProgramName) {
  const std::filesystem::path proc = std::filesystem::path(::testing::TempDir()) / "process_metrics_test_proc";
  std::filesystem::create_directories(proc / "self" / "fd");
  for (const char* fd : {"0", "1", "2", "9"}) std::ofstream(proc / "self" / "fd" / fd) << "";
  std::ofstream(proc / "self" / "stat")
      << "42 (a) (b c) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 17 18 1000 20 7 99\n";
  std::ofstream(proc / "stat") << "cpu 1 2 3\nbtime 1700000000\n";
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto values = Values(ProcessMetrics(proc));
  EXPECT_DOUBLE_EQ(values.at("process_cpu_seconds_total"), 200 / ticks);
  EXPECT_DOUBLE_EQ(values.at("process_resident_memory_bytes"), 7.0 * static_cast<double>(sysconf(_SC_PAGESIZE)));
  EXPECT_DOUBLE_EQ(values.at("process_start_time_seconds"), 1700000000 + 1000 / ticks);
  EXPECT_EQ(values.at("process_open_fds"), 3);
  std::filesystem::remove_all(proc);
}

TEST(ProcessMetricsTest, LeavesOutWhatCannotBeRead) {
  EXPECT_THAT(ProcessMetrics("/nonexistent").Collect(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace sluice
