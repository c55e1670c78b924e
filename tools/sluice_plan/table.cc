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

bool Falls(const Sizing& before, const Sizing& after) {
  return after.slots.goodput_bps < (1 - kStep) * before.slots.goodput_bps;
}

// With an SRU of fixed size the goodput rises with every worker within a batch; that is the tooth itself. A rise counts
// where the schedule has another shape, as it has where more workers mean smaller SRUs.
bool Rises(const Sizing& before, const Sizing& after) {
  const bool reshaped =
      before.slots.batch_workers != after.slots.batch_workers || before.slots.slot != after.slots.slot;
  return reshaped && after.slots.goodput_bps > (1 + kStep) * before.slots.goodput_bps;
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

void PrintRow(const Sizing& row, Tooth tooth, double full_bps, std::ostream& out) {
  const SlotPlan& slots = row.slots;
  out << absl::StrFormat("%8d %8d %8d %6d %7d %10s %10s %13s  %-*s %-7s %13s %13s\n", row.workers, slots.sru_packets,
                         slots.wnd_max_packets, slots.batch_workers, slots.batches, sluice::FormatDuration(slots.slot),
                         row.applicable ? sluice::FormatDuration(slots.block_time) : "-",
                         row.applicable ? FormatBitRate(slots.goodput_bps) : "-", kBarColumns,
                         Bar(slots.goodput_bps, full_bps), Mark(tooth), FormatBitRate(row.rolling_goodput_bps),
                         FormatBitRate(row.unscheduled.goodput_bps));
}

}  // namespace

std::vector<Tooth> FindTeeth(const std::vector<Sizing>& rows) {
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

void PrintTable(const std::vector<Sizing>& rows, bool all, std::ostream& out) {
  const auto goodput = [](const Sizing& row) { return row.slots.goodput_bps; };
  const double full_bps = rows.empty() ? 0 : goodput(*std::ranges::max_element(rows, {}, goodput));
  const std::vector<Tooth> teeth = FindTeeth(rows);
  out << absl::StrFormat("%8s %8s %8s %6s %7s %10s %10s %13s  %-*s %-7s %13s %13s\n", "N", "SRU pkts", "wnd_max", "n",
                         "batches", "slot", "block time", "goodput", kBarColumns, "", "", "rolling", "unscheduled");
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!all && i != 0 && i + 1 != rows.size() && teeth[i] == Tooth::kNone) continue;
    PrintRow(rows[i], teeth[i], full_bps, out);
  }
}

}  // namespace sluice
