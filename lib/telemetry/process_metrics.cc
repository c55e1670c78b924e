#include "lib/telemetry/process_metrics.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include <unistd.h>

#include "lib/telemetry/metric_families.h"

namespace sluice {
namespace {

// The used values of /proc/self/stat, see proc(5).
struct ProcessStat {
  uint64_t user_ticks = 0;
  uint64_t system_ticks = 0;
  uint64_t start_ticks = 0;  // after boot
  int64_t resident_pages = 0;
};

std::optional<ProcessStat> ReadStat(const std::string& proc) {
  std::ifstream file(proc + "/self/stat");
  std::string line;
  // The program's name, in parentheses, may itself contain spaces and parentheses.
  if (!std::getline(file, line) || line.rfind(')') == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  ProcessStat stat;
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  fields >> stat.user_ticks >> stat.system_ticks;  // 14, 15
  for (int field = 16; field < 22; ++field) fields >> skipped;
  fields >> stat.start_ticks >> skipped >> stat.resident_pages;  // 22, 23, 24
  if (!fields) return std::nullopt;
  return stat;
}

// Returns when the machine started, in seconds since the epoch.
std::optional<uint64_t> ReadBootTime(const std::string& proc) {
  std::ifstream file(proc + "/stat");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string key;
    uint64_t seconds = 0;
    if (fields >> key >> seconds && key == "btime") return seconds;
  }
  return std::nullopt;
}

std::optional<int64_t> CountOpenFds(const std::string& proc) {
  std::error_code error;
  int64_t count = 0;
  std::filesystem::directory_iterator entry(proc + "/self/fd", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++count;
  if (error) return std::nullopt;
  return count - 1;  // without the descriptor that reads the folder
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  using prometheus::MetricType;
  const auto ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
  std::vector<prometheus::MetricFamily> families;
  const std::optional<ProcessStat> stat = ReadStat(proc_);
  const std::optional<uint64_t> boot_time = ReadBootTime(proc_);
  const std::optional<int64_t> open_fds = CountOpenFds(proc_);
  if (stat) {
    families.push_back(MakeFamily(MetricType::Counter, "process_cpu_seconds_total", "Processor time, user and system.",
                                  static_cast<double>(stat->user_ticks + stat->system_ticks) / ticks_per_second));
    families.push_back(MakeFamily(MetricType::Gauge, "process_resident_memory_bytes", "Memory that is resident.",
                                  static_cast<double>(stat->resident_pages) * page_bytes));
  }
  if (stat && boot_time) {
    families.push_back(
        MakeFamily(MetricType::Gauge, "process_start_time_seconds", "When the process was started, since the epoch.",
                   static_cast<double>(*boot_time) + static_cast<double>(stat->start_ticks) / ticks_per_second));
  }
  if (open_fds) {
    families.push_back(
        MakeFamily(MetricType::Gauge, "process_open_fds", "Open file descriptors.", static_cast<double>(*open_fds)));
  }
  return families;
}

}  // namespace sluice
