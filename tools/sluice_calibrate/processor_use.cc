#include "tools/sluice_calibrate/processor_use.h"

#include <ctime>
#include <fstream>
#include <string>

namespace sluice {
namespace {

absl::Duration ReadClock(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace

ProcessorUse::Reading ProcessorUse::Read() {
  Reading reading = {.process = ReadClock(CLOCK_PROCESS_CPUTIME_ID), .clock = ReadClock(CLOCK_MONOTONIC)};
  // user, nice, system, idle, iowait, irq, softirq, steal: proc(5). user already includes guests.
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name;
  constexpr int kFields = 8;
  constexpr int kIdle = 3;
  constexpr int kWaiting = 4;
  double ticks = 0;
  for (int field = 0; field < kFields && file >> ticks; ++field) {
    reading.host_ticks += ticks;
    if (field != kIdle && field != kWaiting) reading.host_busy_ticks += ticks;
  }
  return reading;
}

ProcessorUse::ProcessorUse() : before_(Read()) {}

double ProcessorUse::ProcessShare() const {
  const Reading now = Read();
  const absl::Duration elapsed = now.clock - before_.clock;
  return elapsed > absl::ZeroDuration() ? absl::FDivDuration(now.process - before_.process, elapsed) : 0;
}

double ProcessorUse::HostShare() const {
  const Reading now = Read();
  const double ticks = now.host_ticks - before_.host_ticks;
  return ticks > 0 ? (now.host_busy_ticks - before_.host_busy_ticks) / ticks : 0;
}

}  // namespace sluice
