// The schedule alone, in a project of its own: three answers of which two fit the buffer.
#include <chrono>
#include <iostream>
#include <vector>

#include "sluice/link_schedule.h"

int main() {
  sluice::LinkSchedule::Options options;
  options.profile.buffer_bytes = 25000;
  options.discipline = sluice::Discipline::kRolling;
  auto schedule = sluice::LinkSchedule::Create(options);
  if (!schedule.ok()) {
    std::cerr << schedule.status() << "\n";
    return 1;
  }
  const sluice::TimePoint now{};
  const std::vector<sluice::CallRequest> calls(3, {.response_bytes = 10000});
  std::vector<sluice::Action> sent;
  const auto block = schedule->Submit(now, calls, now + std::chrono::seconds(1), sent);
  if (!block.ok() || sent.size() != 2) {
    std::cerr << block.status() << ", " << sent.size() << " requests are sent where 2 answers fit\n";
    return 1;
  }
  return 0;
}
