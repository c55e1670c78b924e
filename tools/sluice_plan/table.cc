#include "tools/sluice_plan/table.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "absl/strings/str_format.h"
#include "lib/cli/units.h"

namespace sluice {
namespace {

constexpr double kStep = 0.05;
constexpr int kBarColumns = 24;

bool Falls(const SweepRow& before, const SweepRow& after) {
  return after.sizing.slots.goodput_bps < (1 - kStep) * before.sizing.slots.goodput_bps;
}

// With SRUs of fixed size, the goodput rises with every worker within a batch: that is the tooth itself. A rise counts
// only if the schedule has a different shape, as when more workers mean smaller SRUs.
bool Rises(const SweepRow& before, const SweepRow& after) {
  const bool reshaped = before.sizing.slots.batch_workers != after.sizing.slots.batch_workers ||
                        before.sizing.slots.slot != after.sizing.slots.slot;
  return reshaped && after.sizing.slots.goodput_bps > (1 + kStep) * before.sizing.slots.goodput_bps;
}

const char* Mark(Tooth tooth) {
  switch (tooth) {
    case Tooth::kNone:
      return "";
    case Tooth::kPeak:
      return "peak";
    case Tooth::kTrough:
      return "trough";
    case Tooth::kRise:
      return "rise";
  }
  return "";
}

std::string Bar(double goodput_bps, double full_bps) {
  const long columns = full_bps > 0 ? std::lround(kBarColumns * goodput_bps / full_bps) : 0;
  return std::string(static_cast<size_t>(columns), '#');
}

void PrintRow(const SweepRow& row, Tooth tooth, double full_bps, std::ostream& out) {
  const Sizing& sizing = row.sizing;
  const SlotPlan& slots = sizing.slots;
  out << absl::StrFormat("%8d %8d %8d %6d %7d %10s %10s %13s  %-*s %-7s %13s %13s %8.2g\n", sizing.read.workers,
                         slots.sru_packets, slots.wnd_max_packets, slots.batch_workers, slots.batches,
                         sluice::FormatDuration(slots.slot),
                         sizing.applicable ? sluice::FormatDuration(slots.block_time) : "-",
                         sizing.applicable ? FormatBitRate(slots.goodput_bps) : "-", kBarColumns,
                         Bar(slots.goodput_bps, full_bps), Mark(tooth), FormatBitRate(sizing.rolling_goodput_bps),
                         FormatBitRate(sizing.unscheduled.goodput_bps), sizing.unscheduled.block_timeout_probability);
}

}  // namespace

std::vector<Tooth> FindTeeth(const std::vector<SweepRow>& rows) {
  std::vector<Tooth> teeth(rows.size(), Tooth::kNone);
  for (size_t i = 1; i < rows.size(); ++i) {
    if (Falls(rows[i - 1], rows[i])) {
      teeth[i - 1] = Tooth::kPeak;
      teeth[i] = Tooth::kTrough;
    } else if (Rises(rows[i - 1], rows[i])) {
      teeth[i] = Tooth::kRise;
    }
  }
  return teeth;
}

void PrintTable(const std::string& swept, const std::vector<SweepRow>& rows, bool all, std::ostream& out) {
  const auto goodput = [](const SweepRow& row) { return row.sizing.slots.goodput_bps; };
  const double full_bps = rows.empty() ? 0 : goodput(*std::ranges::max_element(rows, {}, goodput));
  const std::vector<Tooth> teeth = FindTeeth(rows);
  const bool has_column = swept != "workers";
  const int width = static_cast<int>(std::max<size_t>(13, swept.size() + 1));
  if (has_column) out << absl::StrFormat("%*s", width, swept);
  out << absl::StrFormat("%8s %8s %8s %6s %7s %10s %10s %13s  %-*s %-7s %13s %13s %8s\n", "N", "SRU pkts", "wnd_max",
                         "n", "batches", "slot", "block time", "goodput", kBarColumns, "", "", "grants", "unscheduled",
                         "timeout");
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!all && i != 0 && i + 1 != rows.size() && teeth[i] == Tooth::kNone) continue;
    if (has_column) out << absl::StrFormat("%*s", width, rows[i].value);
    PrintRow(rows[i], teeth[i], full_bps, out);
  }
}

}  // namespace sluice
