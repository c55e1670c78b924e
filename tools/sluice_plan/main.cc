// sluice-plan: the lossless-scheduling model on the command line, for capacity planning of a service.
#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "lib/cli/link_profile_flags.h"
#include "lib/cli/program.h"
#include "lib/cli/units.h"
#include "tools/sluice_plan/batch_advice.h"
#include "tools/sluice_plan/link_echo.h"
#include "tools/sluice_plan/plan_fields.h"
#include "tools/sluice_plan/sizing.h"
#include "tools/sluice_plan/sweep.h"
#include "tools/sluice_plan/table.h"
#include "tools/sluice_plan/verdict.h"

namespace sluice {
namespace {

struct Flags {
  v1::LinkProfile link;
  int64_t workers = 0;
  std::string sru;
  std::string block;
  std::string think;
  std::string rto_min;
  double window = 0;
  double window_deviation = 0;
  int64_t rounds = 0;
  std::string sweep;
  bool json = false;
  bool csv = false;
  bool all = false;
  bool batches = false;
};

void AddFlags(CLI::App& app, Flags& flags) {
  AddLinkProfileFlags(app, flags.link);
  app.add_option("--workers", flags.workers, "N, the number of workers of one read; the table has rows from 1 to N");
  auto* size = app.add_option_group("Size of a read", "Give --sru or --block");
  size->add_option("--sru", flags.sru, "Bytes of the response of each worker");
  size->add_option("--block", flags.block, "Bytes of the data block, which is striped over the workers");
  app.add_option("--think", flags.think,
                 "Time that a worker computes before it responds, for the goodput of tunnels. Default 0");
  auto* tcp = app.add_option_group("Without a schedule", "What the model of collapse takes TCP to do");
  tcp->add_option("--rto_min", flags.rto_min, "Least retransmission timeout. Default 200ms");
  tcp->add_option("--window", flags.window,
                  "w, the mean window of a worker in packets. Default: the worst that slow start passes through");
  tcp->add_option("--window_deviation", flags.window_deviation,
                  "sigma_w, the standard deviation of the windows in packets. Default 0");
  tcp->add_option("--rounds", flags.rounds, "R, rounds of one transmission. Default: as many as the SRU takes");
  app.add_option(
      "--sweep", flags.sweep,
      "NAME=FROM:TO[:STEP], a row for each value, as in buffer=16kb:1mb:x2 or rtt=20us:200us:+20us. NAME is "
      "workers, buffer, sru, capacity, rtt or timer_granularity; STEP is xF or +D, by default +1 for workers "
      "and x2 for the rest. Takes the place of the flag of that name");
  auto* json = app.add_flag("--json", flags.json, "Print one JSON object for N instead of the table");
  app.add_flag("--csv", flags.csv, "Print every row as CSV; sluice-plan-plot draws it")->excludes(json);
  app.add_flag("--all", flags.all, "Print every row of the table, not only powers of two and changes of the verdict");
  app.add_flag("--batches", flags.batches, "Print the slots of the policy batches, and what suits them better");
}

// Checks what CLI11 cannot: "--workers is required, unless it is swept".
absl::Status CheckFlags(const Flags& flags) {
  const std::string_view swept = SweptName(flags.sweep);
  if (flags.json && !flags.sweep.empty()) {
    return absl::InvalidArgumentError("--json prints one read, and --sweep asks for several; give --csv");
  }
  if (flags.workers == 0 && swept != "workers") {
    return absl::InvalidArgumentError(
        absl::StrCat("workers is 0, it must be from 1 to ", kMaxWorkers, "; give --workers, or sweep them"));
  }
  const int sizes = (flags.sru.empty() && swept != "sru" ? 0 : 1) + (flags.block.empty() ? 0 : 1);
  if (sizes == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(sizes == 0
                                        ? "the size of a read is missing: give --sru or --block, or sweep the SRU"
                                        : "a read has one size: give --sru or --block, not both");
}

absl::StatusOr<Read> ParseRead(const Flags& flags) {
  Read read;
  const auto profile = ParseLinkProfile(flags.link);
  if (!profile.ok()) return profile.status();
  read.profile = *profile;
  read.workers = flags.workers;
  read.unscheduled.window_packets = flags.window;
  read.unscheduled.window_deviation = flags.window_deviation;
  read.unscheduled.rounds = flags.rounds;
  absl::Status status = ParseField("rto_min", flags.rto_min, ParseDuration, read.unscheduled.rto_min);
  status.Update(ParseField("think", flags.think, ParseDuration, read.think_time));
  status.Update(ParseField("sru", flags.sru, ParseByteSize, read.sru_bytes));
  if (!flags.block.empty()) status.Update(ParseField("block", flags.block, ParseByteSize, read.block_bytes));
  if (!status.ok()) return status;
  return read;
}

// Returns the checked rows to print. Without a sweep, the last row is the read itself.
absl::Status Configure(const Flags& flags, std::vector<SweepRow>& rows) {
  if (absl::Status status = CheckFlags(flags); !status.ok()) return status;
  const auto read = ParseRead(flags);
  if (!read.ok()) return read.status();
  if (flags.sweep.empty()) {
    auto sizing = SizeUp(*read);
    if (!sizing.ok()) return sizing.status();
    if (flags.json) {
      rows.push_back({.value = "", .sizing = *std::move(sizing)});
      return absl::OkStatus();
    }
  }
  auto sized = SizeUpSweep(flags.sweep.empty() ? absl::StrCat("workers=1:", flags.workers) : flags.sweep, *read);
  if (!sized.ok()) return sized.status();
  rows = *std::move(sized);
  return absl::OkStatus();
}

void PrintForPeople(const Flags& flags, const std::vector<SweepRow>& rows) {
  const bool sweeps = !flags.sweep.empty();
  const std::string swept = sweeps ? std::string(SweptName(flags.sweep)) : "workers";
  const GivenFlags given = {.link = flags.link, .rto_min = !flags.rto_min.empty(), .swept = swept};
  std::cout << (sweeps ? SweepVerdict(swept, rows) : Verdict(rows.back().sizing))
            << EchoLink(rows.back().sizing.read, given, flags.batches) << "\n";
  if (!flags.batches) {
    PrintTable(swept, rows, flags.all || sweeps, std::cout);
    if (!sweeps) std::cout << NextStep(JudgeNeed(rows.back().sizing));
    return;
  }
  PrintBatchTable(swept, rows, flags.all || sweeps, std::cout);
  std::cout << "\n" << (sweeps ? SweepBatchAdvice(rows) : BatchAdvice(rows.back().sizing)) << "\n";
}

absl::Status Print(const Flags& flags, const std::vector<SweepRow>& rows) {
  if (flags.json) {
    std::cout << PlanJson(rows.back().sizing);
  } else if (flags.csv) {
    std::cout << PlanCsv(rows);
  } else {
    PrintForPeople(flags, rows);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Flags flags;
  std::vector<sluice::SweepRow> rows;
  return sluice::RunProgram(
      argc, argv,
      {.name = "sluice-plan",
       .description = "Reports whether a read of many workers needs Sluice, and its goodput with Sluice.",
       .example = "--capacity 100mbit --buffer 32kb --workers 64 --sru 10kb",
       .main_flags = {"--capacity", "--buffer", "--workers", "--sru"},
       .add_flags = [&](CLI::App& app) { sluice::AddFlags(app, flags); },
       .configure = [&] { return sluice::Configure(flags, rows); },
       .run = [&] { return sluice::Print(flags, rows); }});
}
