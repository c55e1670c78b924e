// The part of the library without gRPC, in a project of its own: schedules three answers of which two fit the buffer.
#include <chrono>
#include <iostream>
#include <optional>
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
  std::vector<sluice::Action> sent;
  const auto block = schedule->Submit(now, calls, now + std::chrono::seconds(1), sent);
  std::vector<sluice::Action> granted;
  for (const sluice::Action& action : sent) schedule->OnReady(now, action.call, std::nullopt, granted);
  if (!block.ok() || sent.size() != 3 || granted.size() != 2) {
    std::cerr << block.status() << ", " << sent.size() << " requests out of 3, " << granted.size()
              << " answers granted where 2 fit\n";
    return 1;
  }
  return 0;
}
