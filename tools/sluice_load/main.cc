#include <limits>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "lib/cli/program.h"
#include "lib/cli/units.h"
#include "tools/block_client.h"
#include "tools/client_tls.h"
#include "tools/json_report.h"
#include "tools/percentile.h"
#include "tools/sluice_load/load.h"

namespace sluice {
namespace {

class LoadProgram {
 public:
  void AddFlags(CLI::App& app) {
    app.add_option("--aggregator", options_.aggregator, "Address of the aggregator, host:port or unix:PATH")
        ->required();
    app.add_option("--file", options_.file, "Name of the striped file")->required();
    CLI::Option* const blocks =
        app.add_option("--blocks", options_.blocks, "Number of data blocks that each client reads. Default 10")
            ->check(CLI::Range(1, 1000000));
    app.add_option("--duration", duration_text_, "Read for this long instead, as in 30s")->excludes(blocks);
    app.add_option("--clients", options_.clients,
                   "Number of readers at the same time; each asks for its next block when it has the last one")
        ->check(CLI::Range(1, 1000));
    app.add_option("--warmup", options_.warmup_blocks,
                   "Number of data blocks that each client reads before the measurement. Default 0")
        ->check(CLI::Range(0, 1000000));
    app.add_option("--compare", options_.compare_with, "File to compare every byte with: the one that was striped");
    app.add_option("--start_file", options_.start_file,
                   "After the warm-up print \"warm\" to stderr, and wait until this file exists");
    app.add_option("--stop_file", options_.stop_file, "File whose existence ends the load: no further block begins");
    app.add_option("--timeout", timeout_text_, "Time for each block. Default 600s");
    app.add_option("--json", json_, "File to write the report to. Default -, which is stdout");
    tls_.AddFlags(app);
  }

  absl::Status Configure() {
    absl::Status status = ValidateAggregator(options_.aggregator);
    status.Update(ParseField("timeout", timeout_text_, ParseDuration, options_.timeout));
    status.Update(ParseField("duration", duration_text_, ParseDuration, options_.duration));
    absl::StatusOr<ChannelSecurity> security = tls_.Configure();
    status.Update(security.status());
    if (security.ok()) options_.security = *std::move(security);
    if (!duration_text_.empty()) options_.blocks = std::numeric_limits<int>::max();
    return status;
  }

  absl::Status Run() {
    const auto result = RunLoad(options_);
    if (!result.ok()) return result.status();
    absl::Status written = WriteJsonReport(
        json_, {{"blocks", static_cast<double>(result->block_ms.size())},
                {"bytes", static_cast<double>(result->bytes)},
                {"bad_bytes", static_cast<double>(result->bad_bytes)},
                {"seconds", result->seconds},
                {"goodput_bps", result->seconds > 0 ? 8.0 * static_cast<double>(result->bytes) / result->seconds : 0},
                {"block_ms", result->block_ms},
                {"block_p50_ms", Percentile(result->block_ms, 0.5)},
                {"block_p99_ms", Percentile(result->block_ms, 0.99)},
                {"errors", static_cast<double>(result->errors)},
                {"error_sample", result->error_sample}});
    return written;
  }

 private:
  LoadOptions options_;
  ClientTls tls_;
  std::string timeout_text_;
  std::string duration_text_;
  std::string json_ = "-";
};

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::LoadProgram load;
  return sluice::RunProgram(
      argc, argv,
      {.name = "sluice-load",
       .description = "Reads data blocks through an aggregator, one after the other, and reports how long each took.",
       .example = "--aggregator 127.0.0.1:7500 --file FILE --clients 4 --duration 30s",
       .main_flags = {"--aggregator", "--file", "--clients", "--duration"},
       .add_flags = [&](CLI::App& app) { load.AddFlags(app); },
       .configure = [&] { return load.Configure(); },
       .run = [&] { return load.Run(); }});
}
