#pragma once

#include <string>

#include "sluice/fan_out.h"
#include "sluice/v1/link_profile.pb.h"

#include "absl/status/status.h"
#include "lib/scheduling/link_schedule.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 named it
class App;
}

namespace sluice::examples::search {

// The flags of a program that searches over a link: the link, its schedule, and hedges. One for each program. Not
// thread-safe.
class ScheduleFlags {
 public:
  void Add(CLI::App& app, FanOutOptions& fan_out);
  // Call it once the flags have been read.
  absl::Status Parse(ScheduleOptions& schedule, FanOutOptions& fan_out) const;

 private:
  sluice::v1::LinkProfile link_;
  std::string policy_;
  std::string budget_text_;
  std::string hedge_text_;
};

}  // namespace sluice::examples::search
