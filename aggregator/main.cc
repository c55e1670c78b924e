#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "aggregator/aggregator_server.h"
#include "lib/cli/link_profile_flags.h"
#include "lib/cli/logging.h"
#include "lib/cli/program.h"
#include "lib/cli/ready_file.h"
#include "lib/cli/server_flags.h"
#include "lib/cli/termination_signal.h"
#include "lib/cli/units.h"

namespace sluice {
namespace {

class Aggregator {
 public:
  void AddFlags(CLI::App& app) {
    AddTextFlag(app, "--listen", "host:port or unix:PATH to serve on",
                [this](const auto& value) { config_.set_listen(value); });
    AddListFlag(
        app, "--workers", "host:port of every worker, in the order of the stripe",
        [this](const std::vector<std::string>& list) { config_.mutable_workers()->Assign(list.begin(), list.end()); });
    AddTextFlag(app, "--policy", "unscheduled, batches, rolling or grants. Default grants",
                [this](const auto& value) { config_.mutable_schedule()->set_policy(value); });
    AddTextFlag(app, "--budget", "Bytes that may be in flight, fixed. Default: adaptive, from the buffer of the link",
                [this](const auto& value) { config_.mutable_schedule()->set_budget(value); });
    AddTextFlag(app, "--budget_floor", "The adaptive budget is never smaller. Default: 8 full frames",
                [this](const auto& value) { config_.mutable_schedule()->set_budget_floor(value); });
    AddTextFlag(app, "--budget_limit", "Nor larger. Default: the buffer of the link, or 4mb where that is not given",
                [this](const auto& value) { config_.mutable_schedule()->set_budget_limit(value); });
    app.add_option_function<int64_t>(
        "--queue_limit", [this](int64_t value) { config_.mutable_schedule()->set_queue_limit(value); },
        "SRU calls that may wait; a block that finds no room is refused. Default 65536");
    AddTextFlag(app, "--sru_timeout", "For one answer of one worker. Default 10s",
                [this](const auto& value) { config_.set_sru_timeout(value); });
    AddTextFlag(app, "--block_timeout", "For one block, with waiting and retries. Default 60s",
                [this](const auto& value) { config_.set_block_timeout(value); });
    AddTextFlag(app, "--connect_timeout", "How long a start waits for workers that do not answer. Default 5s",
                [this](const auto& value) { config_.set_connect_timeout(value); });
    app.add_option_function<int64_t>(
        "--attempts", [this](int64_t value) { config_.set_attempts(value); },
        "For one SRU; the next one asks the next replica. Default 2");
    AddTextFlag(app, "--segment_bytes", "A read holds two segments of about this size at most. Default 16mb",
                [this](const auto& value) { config_.set_segment_bytes(value); });
    app.add_option_function<bool>(
        "--watch_connections", [this](bool value) { config_.set_watch_connections(value); },
        "Look at TCP to infer losses, and adapt the budget. Default true");
    AddTextFlag(app, "--shared_link_socket", "Socket of sluice-link, where other processes share the link",
                [this](const auto& value) { config_.mutable_shared_link()->set_socket(value); });
    AddTextFlag(app, "--shared_link_application", "Name in its metrics. Default sluice-aggregator",
                [this](const auto& value) { config_.mutable_shared_link()->set_application(value); });
    app.add_option_function<double>(
        "--shared_link_weight", [this](double value) { config_.mutable_shared_link()->set_weight(value); },
        "Shares are in proportion while all want more. Default 1");
    AddServerFlags(app, config_, ready_file_);
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
