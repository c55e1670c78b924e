// Runs groups of fan-outs that share one link for a given time, and reports the time of each fan-out and the budget
// over time. A part of the test network, not installed.

#include <algorithm>
#include <chrono>
#include <deque>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <google/protobuf/util/json_util.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include "sluice/link.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/cli/link_options.h"
#include "lib/cli/program.h"
#include "tests/testbed/load_group.h"
#include "tests/testbed/start_file.h"

namespace sluice::testbed {
namespace {

using Clock = Window::Clock;

constexpr auto kSampleInterval = std::chrono::milliseconds(100);

// Returns this process's memory in RAM.
double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0;
  double resident_pages = 0;
  statm >> pages >> resident_pages;
  return resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

Clock::time_point After(Clock::time_point start, double seconds) {
  return start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Collects the changes of the budget from the link's thread. There is one for each link. Thread-safe.
class BudgetChanges {
 public:
  void Add(const BudgetChange& budget_change) {
    v1::BudgetChange change;
    change.set_time_s(SecondsBetween({}, Clock::now()));
    change.set_before_bytes(static_cast<double>(budget_change.before_bytes));
    change.set_after_bytes(static_cast<double>(budget_change.after_bytes));
    change.set_decision(std::string(budget_change.decision));
    const std::lock_guard lock(mutex_);
    changes_.push_back(std::move(change));
  }

  void FillIn(v1::GroupLoadReport& report) {
    const std::lock_guard lock(mutex_);
    for (v1::BudgetChange& change : changes_) {
      change.set_time_s(change.time_s() - report.started_s());
      if (change.time_s() >= 0) *report.add_budget_changes() = change;
    }
  }

 private:
  std::mutex mutex_;
  std::vector<v1::BudgetChange> changes_;
};

class GroupLoad {
 public:
  v1::GroupLoadConfig& config() { return config_; }

  void AddFlags(CLI::App& app) {
    app.add_option("--start_file", start_file_, "After the warm-up say \"warm\" on stderr, and wait for this file");
  }

  absl::Status Configure() {
    if (config_.seconds() <= 0) return absl::InvalidArgumentError("seconds: must be above 0");
    for (const v1::LoadGroup& group : config_.groups()) {
      if (absl::Status added = shared_fan_outs_.Add(group); !added.ok()) return added;
      if (group.workers().empty() || group.readers() == 0 || group.timeout_s() <= 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("group \"", group.name(), "\": give workers, readers and timeout_s"));
      }
      if (!group.via().empty() && (group.messages() > 1 || group.merge_s() > 0)) {
        return absl::InvalidArgumentError(
            absl::StrCat("group \"", group.name(), "\": via supports neither messages nor merge_s"));
      }
      if (config_.stock_client() && (group.messages() > 1 || group.merge_s() > 0)) {
        return absl::InvalidArgumentError(
            absl::StrCat("group \"", group.name(), "\": stock_client supports neither messages nor merge_s"));
      }
    }
    if (config_.stock_client()) return absl::OkStatus();
    absl::StatusOr<Link::Options> options =
        ParseLinkOptions(LinkConfig{.link = config_.link(), .schedule = config_.schedule()});
    if (!options.ok()) return options.status();
    link_options_ = *std::move(options);
    return absl::OkStatus();
  }

  absl::Status Run() {
    if (absl::Status made = MakeLink(); !made.ok()) return made;
    for (const v1::LoadGroup& group : config_.groups()) groups_.emplace_back(group);
    if (absl::Status warm = WarmUp(); !warm.ok()) return warm;
    if (absl::Status start = AwaitStartFile(start_file_); !start.ok()) return start;
    v1::GroupLoadReport report;
    report.set_metrics_before(Metrics());
    const auto start = Clock::now();
    report.set_started_s(SecondsBetween({}, start));
    report.set_seconds(config_.seconds());
    const Window window{.start = start, .end = After(start, config_.seconds()), .cut = true};
    if (absl::Status measured = Measure(window, report); !measured.ok()) return measured;
    report.set_metrics_after(Metrics());
    budget_changes_.FillIn(report);
    return Write(report);
  }

 private:
  absl::Status MakeLink() {
    if (config_.stock_client()) return absl::OkStatus();
    link_options_.budget.on_change = [this](const BudgetChange& change) { budget_changes_.Add(change); };
    // A group may merge slowly, and groups share no data, so each group has a callback thread.
    link_options_.callback_threads = std::max(1, config_.groups_size());
    absl::StatusOr<std::shared_ptr<Link>> link = Link::Create(link_options_);
    if (!link.ok()) return link.status();
    link_ = *std::move(link);
    return absl::OkStatus();
  }

  absl::Status WarmUp() {
    std::vector<LoadGroup*> groups;
    for (LoadGroup& group : groups_) {
      if (!group.config().warm_up()) continue;
      absl::Status status = group.Start(link_, config_.ca(), shared_fan_outs_);
      if (status.ok()) status = group.AwaitConnections();
      if (!status.ok()) return status;
      groups.push_back(&group);
    }
    const auto start = Clock::now();
    for (const v1::GroupReport& report : RunAll(groups, {.start = start, .end = After(start, config_.warm_up_s())})) {
      if (!report.error_sample().empty()) {
        return absl::UnavailableError(absl::StrCat("group ", report.name(), ": ", report.error_sample()));
      }
    }
    return absl::OkStatus();
  }

  static std::vector<v1::GroupReport> RunAll(const std::vector<LoadGroup*>& groups, const Window& window) {
    std::vector<v1::GroupReport> reports(groups.size());
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < groups.size(); ++i) {
      threads.emplace_back([&, i] { reports[i] = groups[i]->Run(window); });
    }
    threads.clear();
    return reports;
  }

  absl::Status Measure(const Window& window, v1::GroupLoadReport& report) {
    std::vector<LoadGroup*> groups;
    for (LoadGroup& group : groups_) {
      groups.push_back(&group);
      if (group.config().warm_up()) continue;
      if (absl::Status started = group.Start(link_, config_.ca(), shared_fan_outs_); !started.ok()) return started;
    }
    std::jthread sampler([&](const std::stop_token& stopped) { Sample(window, stopped, report); });
    std::vector<v1::GroupReport> reports = RunAll(groups, window);
    sampler.request_stop();
    sampler.join();
    for (v1::GroupReport& group : reports) *report.add_groups() = std::move(group);
    return absl::OkStatus();
  }

  void Sample(const Window& window, const std::stop_token& stopped, v1::GroupLoadReport& report) {
    for (auto due = window.start; !stopped.stop_requested() && due < window.end; due += kSampleInterval) {
      std::this_thread::sleep_until(due);
      v1::LoadSample& sample = *report.add_samples();
      sample.set_time_s(SecondsBetween(window.start, Clock::now()));
      sample.set_resident_bytes(ResidentBytes());
      if (link_ == nullptr) continue;
      const ScheduleState state = link_->State();
      sample.set_budget_bytes(static_cast<double>(state.budget_bytes));
      sample.set_in_flight_bytes(static_cast<double>(state.in_flight_bytes));
    }
  }

  std::string Metrics() const {
    return link_ == nullptr ? "" : prometheus::TextSerializer().Serialize(link_->registry().Collect());
  }

  static absl::Status Write(const v1::GroupLoadReport& report) {
    google::protobuf::util::JsonPrintOptions options;
    options.always_print_primitive_fields = true;
    options.preserve_proto_field_names = true;
    std::string json;
    const auto written = google::protobuf::util::MessageToJsonString(report, &json, options);
    if (!written.ok()) return absl::InternalError(written.ToString());
    std::cout << json << std::endl;
    return absl::OkStatus();
  }

  v1::GroupLoadConfig config_;
  std::string start_file_;
  Link::Options link_options_;
  BudgetChanges budget_changes_;  // outlives the link, which calls it
  std::shared_ptr<Link> link_;    // null with the stock client
  SharedFanOuts shared_fan_outs_;
  std::deque<LoadGroup> groups_;
};

}  // namespace
}  // namespace sluice::testbed

int main(int argc, char** argv) {
  sluice::testbed::GroupLoad load;
  return sluice::RunProgram(argc, argv,
                            {.name = "group_load",
                             .description = "Runs groups of fan-outs over one link for a given time, and reports each.",
                             .add_flags = [&](CLI::App& app) { load.AddFlags(app); },
                             .config = &load.config(),
                             .configure = [&] { return load.Configure(); },
                             .run = [&] { return load.Run(); }});
}
