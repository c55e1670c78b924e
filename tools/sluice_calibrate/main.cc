// sluice-calibrate: measures the values of a link profile, on the aggregator's host and on the real path to its
// workers.
#include <csignal>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/cli/program.h"
#include "lib/cli/progress_bar.h"
#include "lib/cli/units.h"
#include "lib/link/worker_list.h"
#include "tools/client_tls.h"
#include "tools/interrupt.h"
#include "tools/json_report.h"
#include "tools/sluice_calibrate/calibration.h"
#include "tools/sluice_calibrate/grpc_prober.h"
#include "tools/sluice_calibrate/loss_curve.h"
#include "tools/sluice_calibrate/report.h"

namespace sluice {
namespace {

constexpr int64_t kMinInFlightBytes = 64 << 10;
constexpr int64_t kMaxInFlightBytes = 8 << 20;

absl::Status WriteFile(const char* field, const std::string& path, const std::string& text) {
  if (path.empty()) return absl::OkStatus();
  std::ofstream file;
  if (path != "-") file.open(path);
  std::ostream& out = path == "-" ? std::cout : file;
  out << text << std::flush;
  if (!out) return absl::FailedPreconditionError(absl::StrCat(field, ": cannot write ", path));
  return absl::OkStatus();
}

class CalibrateProgram {
 public:
  void AddFlags(CLI::App& app) {
    AddListFlag(app, "--workers", "Addresses of sluice-workers, host:port; best on different hosts",
                [this](const std::vector<std::string>& list) { workers_ = list; });
    app.add_option("--max_in_flight", max_in_flight_text_,
                   "Maximum number of bytes in flight, and so the largest buffer that can be found. Default 2mb");
    app.add_option("--json", json_, "File to write all figures and every run to");
    app.add_option("--profile", profile_, "File to write the link to, as a config of the aggregator");
    app.add_option("--plot", plot_, "SVG file to draw the losses over the bytes in flight to; needs gnuplot");
    app.add_option("--progress", progress_text_,
                   "When to show progress: auto (on a terminal), always or never. Default auto");
    tls_.AddFlags(app);
  }

  absl::Status Configure() {
    const absl::StatusOr<std::vector<std::string>> workers = ParseFixedWorkers(workers_);
    absl::Status status = workers.status();
    if (workers.ok()) workers_ = *workers;
    status.Update(ParseField("max_in_flight", max_in_flight_text_, ParseByteSize, options_.max_in_flight_bytes));
    status.Update(ParseField("progress", progress_text_, ParseShowProgress, progress_));
    status.Update(interrupts_.status());
    absl::StatusOr<ChannelSecurity> security = tls_.Configure();
    status.Update(security.status());
    if (security.ok()) security_ = *std::move(security);
    if (options_.max_in_flight_bytes < kMinInFlightBytes || options_.max_in_flight_bytes > kMaxInFlightBytes) {
      status.Update(absl::InvalidArgumentError(absl::StrCat("max_in_flight is ", options_.max_in_flight_bytes,
                                                            " bytes; it must be from ", kMinInFlightBytes, " to ",
                                                            kMaxInFlightBytes)));
    }
    status.Update(CheckReportFolder("json", json_));
    status.Update(CheckReportFolder("profile", profile_));
    status.Update(CheckReportFolder("plot", plot_));
    if (!plot_.empty()) status.Update(FindGnuplot());
    return status;
  }

  absl::Status Run() {
    auto prober = GrpcProber::Create(
        workers_, [&] { return Interrupted(*interrupts_); }, security_);
    if (!prober.ok()) return prober.status();
    auto measured = Measure(**prober);
    if (!measured.ok()) return measured.status();
    v1::Calibration report = MakeReport(*measured);
    report.set_measured_at(absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone()));
    report.mutable_workers()->Assign(workers_.begin(), workers_.end());
    complete_ = IsComplete(report);
    PrintReport(report, std::cout);
    absl::Status status = WriteFile("json", json_, ReportJson(report));
    status.Update(WriteFile("profile", profile_, LinkConfigJson(report)));
    if (plot_.empty()) return status;
    if (report.buffer_runs().empty()) {
      std::cerr << "sluice-calibrate: plot: there is nothing to draw, as the buffer was not measured" << std::endl;
      return status;
    }
    status.Update(DrawLossCurve(report, plot_));
    return status;
  }

  // Returns 3 for a calibration that could not determine everything.
  int ExitCode(int code) const {
    constexpr int kPartial = 3;
    return code == 0 && !complete_ ? kPartial : code;
  }

 private:
  absl::StatusOr<Measurements> Measure(Prober& prober) {
    ProgressBar progress(progress_);
    options_.on_progress = [&progress](double share, const std::string& stage) { progress.UpdateStage(share, stage); };
    return Calibrate(prober, options_);
  }

  // This member comes first: gRPC's credentials start threads, which would receive signals that are not blocked yet.
  const absl::StatusOr<FileDescriptor> interrupts_ = CatchInterrupts();
  std::vector<std::string> workers_;
  std::string max_in_flight_text_;
  std::string json_;
  std::string profile_;
  std::string plot_;
  std::string progress_text_;
  ShowProgress progress_ = ShowProgress::kAuto;
  CalibrationOptions options_;
  ClientTls tls_;
  ChannelSecurity security_;
  bool complete_ = true;
};

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::CalibrateProgram calibrate;
  const int code = sluice::RunProgram(
      argc, argv,
      {.name = "sluice-calibrate",
       .description =
           "Measures the link to workers, its rate, round trip and the buffer of its port, and the timers of "
           "this host.",
       .example = "--workers 10.0.0.1:7000,10.0.0.2:7000 --max-in-flight 4mb --profile link.json --plot losses.svg",
       .main_flags = {"--workers", "--max_in_flight", "--profile", "--plot"},
       .add_flags = [&](CLI::App& app) { calibrate.AddFlags(app); },
       .configure = [&] { return calibrate.Configure(); },
       .run = [&] { return calibrate.Run(); }});
  return calibrate.ExitCode(code);
}
