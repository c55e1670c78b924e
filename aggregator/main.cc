#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "aggregator/aggregator_server.h"
#include "lib/cli/link_profile_flags.h"
#include "lib/cli/logging.h"
#include "lib/cli/program.h"
#include "lib/cli/ready_file.h"
#include "lib/cli/termination_signal.h"
#include "lib/cli/units.h"

namespace sluice {
namespace {

class Aggregator {
 public:
  void AddFlags(CLI::App& app) {
    const auto text = [&app](const char* name, std::function<void(const std::string&)> set, const char* help) {
      app.add_option_function<std::string>(name, std::move(set), help);
    };
    text(
        "--listen", [this](const auto& value) { config_.set_listen(value); }, "host:port or unix:PATH to serve on");
    text(
        "--admin", [this](const auto& value) { config_.set_admin(value); }, "host:port of /metrics; default: none");
    AddListFlag(
        app, "--workers", "host:port of every worker, in the order of the stripe",
        [this](const std::vector<std::string>& list) { config_.mutable_workers()->Assign(list.begin(), list.end()); });
    text(
        "--policy", [this](const auto& value) { config_.mutable_schedule()->set_policy(value); },
        "unscheduled, batches or rolling. Default rolling");
    text(
        "--budget", [this](const auto& value) { config_.mutable_schedule()->set_budget(value); },
        "Bytes that may be in flight. Default: the buffer of the link");
    app.add_option_function<int64_t>(
        "--queue_limit", [this](int64_t value) { config_.mutable_schedule()->set_queue_limit(value); },
        "SRU calls that may wait; a block that finds no room is refused. Default 65536");
    text(
        "--sru_timeout", [this](const auto& value) { config_.set_sru_timeout(value); },
        "For one answer of one worker. Default 10s");
    text(
        "--block_timeout", [this](const auto& value) { config_.set_block_timeout(value); },
        "For one block, with waiting and retries. Default 60s");
    text(
        "--connect_timeout", [this](const auto& value) { config_.set_connect_timeout(value); },
        "How long a start waits for workers that do not answer. Default 5s");
    app.add_option_function<int64_t>(
        "--attempts", [this](int64_t value) { config_.set_attempts(value); },
        "For one SRU; the next one asks the next replica. Default 2");
    text(
        "--segment_bytes", [this](const auto& value) { config_.set_segment_bytes(value); },
        "A read holds two segments of about this size at most. Default 16mb");
    text(
        "--drain_timeout", [this](const auto& value) { config_.set_drain_timeout(value); },
        "How long SIGTERM waits for reads under way. Default 10s");
    text(
        "--log_level", [this](const auto& value) { config_.set_log_level(value); },
        "debug, info, warning or error. Default info");
    app.add_flag_function(
        "--reflection", [this](int64_t count) { config_.set_reflection(count > 0); }, "Serve gRPC reflection");
    app.add_option("--ready_file", ready_file_, "Write the bound addresses here once serving");
    AddLinkProfileFlags(app, *config_.mutable_link());
  }

  absl::Status Configure() {
    if (absl::Status status = SetLogLevel(config_.log_level()); !status.ok()) return status;
    auto options = ParseAggregatorConfig(config_);
    if (!options.ok()) return options.status();
    options_ = *std::move(options);
    return absl::OkStatus();
  }

  absl::Status Run() {
    IoThread io_thread;
    TerminationSignal termination(io_thread.context());
    auto server = AggregatorServer::Start(options_, io_thread);
    if (!server.ok()) return server.status();
    const LinkSchedule::Options& schedule = options_.link.schedule;
    Log(LogLevel::kInfo, "serving",
        {{"listen", (*server)->address()},
         {"admin", (*server)->admin_address()},
         {"workers", options_.reader.workers.size()},
         {"policy", DisciplineName(schedule.discipline)},
         {"capacity", FormatBitRate(schedule.profile.capacity_bytes_per_second * 8)},
         {"buffer_bytes", BufferBudgetBytes(schedule.profile)}});
    const absl::Status ready = WriteReadyFile(ready_file_, {(*server)->address(), (*server)->admin_address()});
    if (!ready.ok()) return ready;
    const int signal = termination.Wait();
    Log(LogLevel::kInfo, "draining", {{"signal", signal}, {"timeout", options_.rpc_server.drain_timeout}});
    (*server)->Drain();
    Log(LogLevel::kInfo, "stopped");
    return absl::OkStatus();
  }

  google::protobuf::Message& config() { return config_; }

 private:
  v1::AggregatorConfig config_;
  std::string ready_file_;
  AggregatorOptions options_;
};

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Aggregator aggregator;
  return sluice::RunProgram(
      argc, argv,
      {.name = "sluice-aggregator",
       .description = "Reads files striped over many workers without TCP incast, and serves them to clients.",
       .add_flags = [&](CLI::App& app) { aggregator.AddFlags(app); },
       .config = &aggregator.config(),
       .configure = [&] { return aggregator.Configure(); },
       .run = [&] { return aggregator.Run(); }});
}
