// sluice-diagnose: watches the TCP connections of this host for some seconds, and reports whether it has incast. It
// needs neither Sluice in the service nor privileges.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <iostream>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <poll.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/cli/program.h"
#include "lib/cli/progress_bar.h"
#include "lib/cli/units.h"
#include "lib/tcp/socket_diag.h"
#include "lib/tcp/stall_watch.h"
#include "lib/tcp/tcp_ext.h"
#include "tools/interrupt.h"
#include "tools/json_report.h"
#include "tools/sluice_diagnose/report.h"

namespace sluice {
namespace {

// The time between two rounds of samples. A more expensive round is taken more rarely, so that all rounds take at most
// a fifth of a CPU.
constexpr absl::Duration kPeriod = absl::Milliseconds(20);
constexpr int kCostFactor = 5;
constexpr absl::Duration kLeastDuration = absl::Seconds(1);
constexpr absl::Duration kMostDuration = absl::Hours(1);

TcpExt Difference(const TcpExt& before, const TcpExt& now) {
  return {.retransmitted_packets = now.retransmitted_packets - before.retransmitted_packets,
          .rtos = now.rtos - before.rtos,
          .rtos_after_feedback = now.rtos_after_feedback - before.rtos_after_feedback,
          .fast_recoveries = now.fast_recoveries - before.fast_recoveries,
          .lost_retransmits = now.lost_retransmits - before.lost_retransmits,
          .spurious_rtos = now.spurious_rtos - before.spurious_rtos,
          .tail_loss_probes = now.tail_loss_probes - before.tail_loss_probes,
          .tail_loss_recoveries = now.tail_loss_recoveries - before.tail_loss_recoveries};
}

class DiagnoseProgram {
 public:
  void AddFlags(CLI::App& app) {
    app.add_option("--duration", duration_text_, "How long to watch, 1s to 1h. Default 30s");
    app.add_option("--port", port_,
                   "Watch only the connections that have this port at either end, as the port of the workers. Default: "
                   "all connections to other hosts")
        ->check(CLI::Range(1, 65535));
    app.add_option("--json", json_, "File to write the verdict and the figures to; - is stdout, without the text");
    app.add_option("--progress", progress_text_,
                   "When to show progress: auto (on a terminal), always or never. Default auto");
  }

  absl::Status Configure() {
    absl::Status status = interrupts_.status();
    status.Update(ParseField("duration", duration_text_, ParseDuration, duration_));
    status.Update(ParseField("progress", progress_text_, ParseShowProgress, progress_));
    if (duration_ < kLeastDuration || duration_ > kMostDuration) {
      status.Update(absl::InvalidArgumentError(
          absl::StrCat("duration is ", sluice::FormatDuration(duration_), "; it must be from 1s to 1h")));
    }
    status.Update(CheckReportFolder("json", json_));
    return status;
  }

  absl::Status Run() {
    absl::StatusOr<SocketDiag> diag = SocketDiag::Open();
    if (!diag.ok()) return diag.status();
    const absl::StatusOr<TcpExt> before = ReadTcpExt();
    if (!before.ok()) return before.status();
    StallWatch watch(port_);
    const absl::StatusOr<absl::Duration> watched = Watch(*diag, watch);
    if (!watched.ok()) return watched.status();
    const absl::StatusOr<TcpExt> after = ReadTcpExt();
    if (!after.ok()) return after.status();

    DiagnosisReport report{.counted = Difference(*before, *after), .watched = *watched};
    // The counters are of all connections, and say nothing about those of one port.
    report.diagnosis = DiagnoseIncast(watch.Finish(*watched), port_.has_value() ? TcpExt() : report.counted);
    verdict_ = report.diagnosis.verdict;
    if (json_ != "-") std::cout << ReportText(report) << std::flush;
    return json_.empty() ? absl::OkStatus() : WriteReport(report, json_);
  }

  // Yes and "not sure" have codes of their own, which no failure has.
  int ExitCode(int code) const {
    constexpr int kNotSure = 3;
    constexpr int kYes = 4;
    if (code != 0 || !verdict_.has_value() || *verdict_ == IncastVerdict::kNo) return code;
    return *verdict_ == IncastVerdict::kYes ? kYes : kNotSure;
  }

 private:
  // Returns how long it watched. An interrupt ends the watch early, and the verdict is about the time until then.
  absl::StatusOr<absl::Duration> Watch(SocketDiag& diag, StallWatch& watch) {
    ProgressBar progress(progress_);
    const auto began = std::chrono::steady_clock::now();
    const auto elapsed = [&began] { return absl::FromChrono(std::chrono::steady_clock::now() - began); };
    while (true) {
      const absl::Duration round_began = elapsed();
      if (round_began >= duration_) return round_began;
      const std::clock_t cpu_began = std::clock();
      size_t connections = 0;
      const absl::Status read = diag.ForEachSlice([&](absl::Span<const TcpSocket> sockets) {
        watch.Add(elapsed(), sockets);
        connections += sockets.size();
      });
      if (!read.ok()) return read;
      const absl::Duration round_ended = elapsed();
      watch.EndRound(round_ended);
      progress.UpdateStage(round_ended / duration_, absl::StrCat("watching ", connections, " connections"));
      const absl::Duration cost = absl::Seconds(static_cast<double>(std::clock() - cpu_began) / CLOCKS_PER_SEC);
      const absl::Duration period = std::max(kPeriod, kCostFactor * cost);
      pollfd interrupt = {.fd = interrupts_->get(), .events = POLLIN, .revents = 0};
      const absl::Duration wait = std::min(round_began + period, duration_) - round_ended;
      if (poll(&interrupt, 1, static_cast<int>(std::max<int64_t>(absl::ToInt64Milliseconds(wait), 0))) > 0) {
        return elapsed();
      }
    }
  }

  const absl::StatusOr<FileDescriptor> interrupts_ = CatchInterrupts();
  std::string duration_text_;
  absl::Duration duration_ = absl::Seconds(30);
  std::optional<uint16_t> port_;
  std::string json_;
  std::string progress_text_;
  ShowProgress progress_ = ShowProgress::kAuto;
  std::optional<IncastVerdict> verdict_;
};

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::DiagnoseProgram diagnose;
  const int code = sluice::RunProgram(
      argc, argv,
      {.name = "sluice-diagnose",
       .description = "Reports whether this host has TCP incast, by what its kernel shows while the service is under "
                      "load. Exit code: 0 no, 4 yes, 3 not sure.",
       .example = "--duration 60s --port 7000 --json incast.json",
       .main_flags = {"--duration", "--port", "--json", "--progress"},
       .add_flags = [&](CLI::App& app) { diagnose.AddFlags(app); },
       .configure = [&] { return diagnose.Configure(); },
       .run = [&] { return diagnose.Run(); }});
  return diagnose.ExitCode(code);
}
