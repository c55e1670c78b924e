#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include "sluice/fan_out.h"
#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "lib/cli/link_profile_flags.h"
#include "lib/cli/program.h"
#include "lib/cli/units.h"
#include "lib/link/link_loop.h"
#include "tests/testbed/answer_workload.h"
#include "tests/testbed/block_callers.h"

namespace sluice::testbed {
namespace {

// Runs fan-outs in lockstep with its parent process. After each block it writes a line of JSON to stdout, with all
// inferences of the library for each worker so far, and waits for a line on stdin. During the wait no packet is in
// flight, so the parent can count the true losses.
class InferenceLoad {
 public:
  void AddFlags(CLI::App& app) {
    AddListFlag(app, "--workers", "host:port of the servers, comma-separated",
                [this](const std::vector<std::string>& list) { workers_ = list; });
    app.add_option("--policy", policy_, "Of the link. Default grants");
    app.add_option("--response_bytes", response_bytes_, "Of an answer. Default 10kb");
    app.add_option("--think", think_, "Servers answer so much later. Default 0");
    app.add_option("--tail_time", tail_time_, "Instead of --think for a share of the answers");
    app.add_option("--tail_share", shape_.tail_share, "That share. Default 0")->check(CLI::Range(0.0, 1.0));
    app.add_option("--blocks", blocks_, "Fan-outs. Default 10")->check(CLI::Range(1, 1000000));
    AddLinkProfileFlags(app, link_);
  }

  absl::Status Configure() {
    if (workers_.empty()) return absl::InvalidArgumentError("workers: none are given; give host:port,host:port");
    absl::StatusOr<AnswerShape> sizes = ParseResponseBytes(response_bytes_);
    if (!sizes.ok()) return sizes.status();
    shape_.min_bytes = sizes->min_bytes;
    shape_.max_bytes = sizes->max_bytes;
    absl::Duration think;
    absl::Duration tail;
    absl::Status status = ParseField("think", think_, ParseDuration, think);
    status.Update(ParseField("tail_time", tail_time_, ParseDuration, tail));
    shape_.think_us = static_cast<uint32_t>(absl::ToInt64Microseconds(think));
    shape_.tail_think_us = static_cast<uint32_t>(absl::ToInt64Microseconds(tail));
    absl::StatusOr<LinkProfile> profile = ParseLinkProfile(link_);
    status.Update(profile.status());
    absl::StatusOr<SchedulePolicy> policy = ParseSchedulePolicy(policy_);
    status.Update(policy.status());
    if (!status.ok()) return status;
    options_.schedule.profile = *profile;
    options_.schedule.policy = *policy;
    // The budget must stay fixed even if it is too large. Otherwise the losses would soon end, and with them the
    // inferences.
    options_.schedule.budget_bytes = BufferBudgetBytes(*profile);
    return absl::OkStatus();
  }

  absl::Status Run() {
    absl::StatusOr<std::shared_ptr<Link>> link = Link::Create(options_);
    if (!link.ok()) return link.status();
    absl::StatusOr<std::unique_ptr<FanOut>> fan_out =
        FanOut::Create(*link, {.workers = workers_, .connect_timeout = absl::Seconds(60)});
    if (!fan_out.ok()) return fan_out.status();
    if (!(*fan_out)->Connect().empty()) return absl::UnavailableError("not all workers answer");
    const std::unique_ptr<BlockCaller> caller = MakeFanOutCaller(**fan_out, {});
    AnswerWorkload workload(shape_, /*seed=*/1);
    for (int block = 0; block < blocks_; ++block) {
      BlockRecord record;
      absl::Status called = caller->Call(workload.NextBlock(workers_.size()), absl::Minutes(2), record);
      if (!called.ok()) return called;
      (*link)->Await([this](LinkLoop& loop) {
        loop.worker_table().BeginLook(loop.now(), TimePoint(), TimePoint());
        loop.worker_table().LookAt(loop.now(), loop.workers().TcpSockets(std::nullopt, workers_.size()).sockets);
        loop.worker_table().EndLook();
      });
      if (absl::Status told = Tell((*link)->WorkerSummaries()); !told.ok()) return told;
      if (std::string line; !std::getline(std::cin, line)) return absl::CancelledError("nobody waits for more");
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Tell(const std::vector<WorkerSummary>& workers) {
    google::protobuf::Struct line;
    for (const WorkerSummary& worker : workers) {
      auto& counts = *(*line.mutable_fields())[worker.address].mutable_struct_value()->mutable_fields();
      counts["losses"].set_number_value(static_cast<double>(worker.losses));
      counts["rtos"].set_number_value(static_cast<double>(worker.rtos));
    }
    std::string json;
    const auto written = google::protobuf::util::MessageToJsonString(line, &json);
    if (!written.ok()) return absl::InternalError(written.ToString());
    std::cout << json << std::endl;
    return absl::OkStatus();
  }

  std::vector<std::string> workers_;
  std::string policy_ = "grants";
  std::string response_bytes_ = "10kb";
  std::string think_;
  std::string tail_time_;
  int blocks_ = 10;
  AnswerShape shape_;
  sluice::v1::LinkProfile link_;
  Link::Options options_;
};

}  // namespace
}  // namespace sluice::testbed

int main(int argc, char** argv) {
  sluice::testbed::InferenceLoad load;
  return sluice::RunProgram(argc, argv,
                            {.name = "inference_load",
                             .description = "Fans out in lockstep, and tells which losses the library has inferred.",
                             .add_flags = [&](CLI::App& app) { load.AddFlags(app); },
                             .configure = [&] { return load.Configure(); },
                             .run = [&] { return load.Run(); }});
}
