// The part of the library without gRPC, in a project of its own: schedules three responses of which two fit the buffer.
#include <chrono>
#include <iostream>
#include <vector>

#include "sluice/link_schedule.h"

int main() {
  sluice::LinkSchedule::Options options;
  options.profile.buffer_bytes = 25000;
  auto schedule = sluice::LinkSchedule::Create(options);
  if (!schedule.ok()) {
    std::cerr << schedule.status() << "\n";
    return 1;
  }
  const sluice::TimePoint now{};
  const std::vector<sluice::CallRequest> calls(3, {.response_bytes = 10000});
  std::vector<sluice::Action> actions;
  const auto block = schedule->Submit(now, calls, now + std::chrono::seconds(1), actions);
  if (!block.ok() || actions.size() != 2 || schedule->State().waiting_calls != 1) {
    std::cerr << block.status() << ", " << actions.size() << " responses admitted where 2 fit\n";
    return 1;
  }
  return 0;
}
