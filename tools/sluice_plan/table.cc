#include "tools/sluice_plan/table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <ostream>

#include "absl/strings/str_format.h"
#include "lib/cli/units.h"
#include "tools/sluice_plan/verdict.h"

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

double Grants(const Sizing& sizing) {
  return sizing.grants_goodput_bps;
}
double Unscheduled(const Sizing& sizing) {
  return sizing.unscheduled_goodput_bps.value_or(0);
}
std::string UnscheduledText(const Sizing& sizing) {
  return sizing.unscheduled_goodput_bps ? FormatBitRate(*sizing.unscheduled_goodput_bps) : "unknown";
}
// A word and no number: the probability is wrong by orders of magnitude as long as it is small.
const char* Timeouts(const Sizing& sizing) {
  if (sizing.unscheduled_goodput_bps) return "none";
  return CollapseIsLikely(sizing) ? "likely" : "possible";
}
double Batches(const Sizing& sizing) {
  return sizing.slots.goodput_bps;
}

double Largest(const std::vector<SweepRow>& rows, double (*goodput)(const Sizing&)) {
  double largest = 0;
  for (const SweepRow& row : rows) largest = std::max(largest, goodput(row.sizing));
  return largest;
}

// The column of what is swept; workers have a column in every table.
class SweptColumn {
 public:
  explicit SweptColumn(const std::string& swept)
      : shown_(swept != "workers"), width_(static_cast<int>(std::max<size_t>(13, swept.size() + 1))) {}

  std::string Cell(const std::string& text) const { return shown_ ? absl::StrFormat("%*s", width_, text) : ""; }

 private:
  const bool shown_;
  const int width_;
};

bool IsLandmark(const std::vector<SweepRow>& rows, size_t i) {
  if (i == 0 || i + 1 == rows.size()) return true;
  const Sizing& sizing = rows[i].sizing;
  return std::has_single_bit(static_cast<uint64_t>(sizing.read.workers)) ||
         JudgeNeed(sizing) != JudgeNeed(rows[i - 1].sizing);
}

std::string BatchRow(const SweepRow& row, Tooth tooth, double full_bps) {
  const Sizing& sizing = row.sizing;
  const SlotPlan& slots = sizing.slots;
  return absl::StrFormat(
      "%8d %8d %8d %6d %7d %10s %10s %13s  %-*s %-7s %13s %13s %8s\n", sizing.read.workers, slots.sru_packets,
      slots.wnd_max_packets, slots.batch_workers, slots.batches, sluice::FormatDuration(slots.slot),
      sizing.applicable ? sluice::FormatDuration(slots.block_time) : "-",
      sizing.applicable ? FormatBitRate(slots.goodput_bps) : "-", kBarColumns, Bar(slots.goodput_bps, full_bps),
      Mark(tooth), FormatBitRate(Grants(sizing)), UnscheduledText(sizing), Timeouts(sizing));
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
  const double full_bps = std::max(Largest(rows, Grants), Largest(rows, Unscheduled));
  const SweptColumn column(swept);
  out << column.Cell(swept)
      << absl::StrFormat("%8s %13s  %-*s %13s  %-*s %8s  %s\n", "N", "grants", kBarColumns, "", "unscheduled",
                         kBarColumns, "", "timeouts", "Sluice");
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!all && !IsLandmark(rows, i)) continue;
    const Sizing& sizing = rows[i].sizing;
    out << column.Cell(rows[i].value)
        << absl::StrFormat("%8d %13s  %-*s %13s  %-*s %8s  %s\n", sizing.read.workers, FormatBitRate(Grants(sizing)),
                           kBarColumns, Bar(Grants(sizing), full_bps), UnscheduledText(sizing), kBarColumns,
                           Bar(Unscheduled(sizing), full_bps), Timeouts(sizing), NeedName(JudgeNeed(sizing)));
  }
  out << "\ngrants, unscheduled: goodput of one fan-out after the other.\n"
         "unknown: the responses exceed the buffer; "
      << kCannotSay
      << ".\n"
         "timeouts: whether the model of collapse expects most fan-outs to wait for a TCP timeout.\n";
}

void PrintBatchTable(const std::string& swept, const std::vector<SweepRow>& rows, bool all, std::ostream& out) {
  const double full_bps = Largest(rows, Batches);
  const std::vector<Tooth> teeth = FindTeeth(rows);
  const SweptColumn column(swept);
  out << column.Cell(swept)
      << absl::StrFormat("%8s %8s %8s %6s %7s %10s %10s %13s  %-*s %-7s %13s %13s %8s\n", "N", "SRU pkts", "wnd_max",
                         "n", "batches", "slot", "block time", "by batches", kBarColumns, "", "", "grants",
                         "unscheduled", "timeouts");
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!all && i != 0 && i + 1 != rows.size() && teeth[i] == Tooth::kNone) continue;
    out << column.Cell(rows[i].value) << BatchRow(rows[i], teeth[i], full_bps);
  }
}

}  // namespace sluice
