#include <chrono>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "lib/cli/program.h"
#include "lib/cli/progress_bar.h"
#include "lib/cli/units.h"
#include "lib/storage/stripe/crc32c.h"
#include "tools/block_client.h"
#include "tools/client_tls.h"
#include "tools/json_report.h"
#include "tools/percentile.h"
#include "tools/sluice_cat/output.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::duration span) {
  return std::chrono::duration<double, std::milli>(span).count();
}

// Records the completion times of a read's data blocks. The time of a block starts at the completion of the previous
// block.
class BlockTimes {
 public:
  BlockTimes() : started_(Clock::now()), last_(started_) {}

  void Begin(const v1::ReadHeader& header) {
    block_bytes_ = header.block_bytes();
    end_ = header.offset() + header.length();
    next_end_ = std::min(header.offset() + block_bytes_, end_);
  }

  void Reach(uint64_t offset) {
    while (offset >= next_end_ && offset > counted_) {
      const auto now = Clock::now();
      milliseconds_.push_back(Milliseconds(now - last_));
      last_ = now;
      counted_ = next_end_;
      next_end_ = std::min(next_end_ + block_bytes_, end_);
      if (counted_ == end_) return;
    }
  }

  double Seconds() const { return Milliseconds(last_ - started_) / 1000; }
  const std::vector<double>& milliseconds() const { return milliseconds_; }

 private:
  const Clock::time_point started_;
  Clock::time_point last_;
  uint64_t block_bytes_ = 0;
  uint64_t next_end_ = 0;
  uint64_t end_ = 0;
  uint64_t counted_ = 0;
  std::vector<double> milliseconds_;
};

class Cat {
 public:
  void AddFlags(CLI::App& app) {
    app.add_option("--aggregator", aggregator_, "Address of the aggregator, host:port or unix:PATH")->required();
    app.add_option("--block", block_, "Read only this data block, counted from 0. Default: the whole file")
        ->check(CLI::NonNegativeNumber);  // CLI11 parses -1 as the largest number
    app.add_option("--output", output_, "File to write to; it appears when it is complete. Default: stdout");
    app.add_flag("--partial", partial_, "Write zeros for SRUs that cannot be read, and exit with code 3");
    app.add_option("--timeout", timeout_text_, "Time for the whole read. Default: no limit");
    app.add_option("--progress", progress_text_,
                   "When to show progress: auto (on a terminal), always or never. Default auto");
    app.add_option("--json_stats", json_stats_, "File to write bytes, seconds, goodput and the time of each block to");
    tls_.AddFlags(app);
    app.add_option("FILE", file_, "Name of the striped file")->required();
  }

  absl::Status Configure() {
    absl::Status status = ValidateAggregator(aggregator_);
    status.Update(ParseField("timeout", timeout_text_, ParseDuration, timeout_));
    status.Update(ParseField("progress", progress_text_, ParseShowProgress, progress_));
    absl::StatusOr<ChannelSecurity> security = tls_.Configure();
    status.Update(security.status());
    if (security.ok()) security_ = *std::move(security);
    return status;
  }

  absl::Status Run() {
    auto output = Output::Open(output_);
    if (!output.ok()) return output.status();
    ProgressBar progress(progress_);
    uint64_t bytes = 0;
    uint32_t crc32c = 0;
    v1::ReadHeader header;
    BlockTimes times;
    const BlockClient::Sink sink{.on_header =
                                     [&](const v1::ReadHeader& first) {
                                       header = first;
                                       times.Begin(first);
                                       return absl::OkStatus();
                                     },
                                 .on_data =
                                     [&](uint64_t offset, std::string_view data) {
                                       bytes += data.size();
                                       crc32c = Crc32c(data, crc32c);
                                       times.Reach(offset + data.size());
                                       progress.Update(offset + data.size() - header.offset(), header.length());
                                       return (*output)->Write(data);
                                     },
                                 .on_missing =
                                     [&](const v1::MissingRange& missing) {
                                       times.Reach(missing.offset() + missing.length());
                                       missing_.push_back(missing);
                                       return (*output)->WriteZeros(missing.length());
                                     }};
    const auto summary = BlockClient(aggregator_, security_).Read(Request(), timeout_, sink);
    if (!summary.ok()) return summary.status();
    const bool whole = !block_ && missing_.empty();
    if (whole && crc32c != header.file_crc32c()) {
      return absl::DataLossError(absl::StrCat("CRC32C of the file is ", absl::Hex(crc32c, absl::kZeroPad8),
                                              "; the manifest has ", absl::Hex(header.file_crc32c(), absl::kZeroPad8)));
    }
    if (absl::Status committed = (*output)->Commit(); !committed.ok()) return committed;
    return Report(bytes, times);
  }

  // Returns 3 for a read that is sound but not complete.
  int ExitCode(int code) const {
    constexpr int kPartial = 3;
    return code == 0 && !missing_.empty() ? kPartial : code;
  }

  // Reports missing ranges, after the progress bar has been removed.
  void TellMissing() const {
    for (const v1::MissingRange& range : missing_) {
      std::cerr << "sluice-cat: missing: bytes " << range.offset() << " to " << range.offset() + range.length() - 1
                << ": " << range.reason() << std::endl;
    }
  }

 private:
  v1::ReadRequest Request() const {
    v1::ReadRequest request;
    request.set_file(file_);
    if (block_) request.set_block(*block_);
    request.set_allow_partial(partial_);
    return request;
  }

  absl::Status Report(uint64_t bytes, const BlockTimes& times) const {
    if (json_stats_.empty()) return absl::OkStatus();
    const double seconds = times.Seconds();
    return WriteJsonReport(json_stats_, {{"bytes", static_cast<double>(bytes)},
                                         {"seconds", seconds},
                                         {"goodput_bps", seconds > 0 ? 8.0 * static_cast<double>(bytes) / seconds : 0},
                                         {"block_ms", times.milliseconds()},
                                         {"block_p50_ms", Percentile(times.milliseconds(), 0.5)},
                                         {"block_p99_ms", Percentile(times.milliseconds(), 0.99)}});
  }

  std::string aggregator_;
  ClientTls tls_;
  ChannelSecurity security_;
  std::string file_;
  std::optional<uint64_t> block_;
  std::string output_;
  bool partial_ = false;
  std::string timeout_text_;
  absl::Duration timeout_ = absl::InfiniteDuration();
  std::string progress_text_;
  ShowProgress progress_ = ShowProgress::kAuto;
  std::string json_stats_;
  std::vector<v1::MissingRange> missing_;
};

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  // If the reader closes the pipe, report a write error instead of ending the process.
  std::signal(SIGPIPE, SIG_IGN);
  sluice::Cat cat;
  const int code = sluice::RunProgram(argc, argv,
                                      {.name = "sluice-cat",
                                       .description = "Reads a striped file through an aggregator.",
                                       .example = "--aggregator 127.0.0.1:7500 --output copy.bin FILE",
                                       .main_flags = {"--aggregator", "--output", "--block", "--partial"},
                                       .add_flags = [&](CLI::App& app) { cat.AddFlags(app); },
                                       .configure = [&] { return cat.Configure(); },
                                       .run = [&] { return cat.Run(); }});
  cat.TellMissing();
  return cat.ExitCode(code);
}
