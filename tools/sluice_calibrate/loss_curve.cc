#include "tools/sluice_calibrate/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

constexpr double kKib = 1024;
// Runs that differ by less than this factor are drawn as one point.
constexpr double kPointWidth = 1.02;

struct Point {
  double queue_bytes = 0;  // sum over the runs
  int runs = 0;
  int lossy_runs = 0;
  int64_t lost_packets = 0;
};

std::string Points(const v1::Calibration& report) {
  std::map<int, Point> points;
  for (const v1::LoadRun& run : report.buffer_runs()) {
    const double logarithm = std::log(std::max<double>(static_cast<double>(run.queue_bytes()), 1));
    Point& point = points[static_cast<int>(std::lround(logarithm / std::log(kPointWidth)))];
    point.queue_bytes += static_cast<double>(run.queue_bytes());
    ++point.runs;
    point.lossy_runs += run.lost_packets() > 0 ? 1 : 0;
    point.lost_packets += run.lost_packets();
  }
  std::string text;
  for (const auto& [unused, point] : points) {
    absl::StrAppendFormat(&text, "%.3f %.1f %.2f\n", point.queue_bytes / point.runs / kKib,
                          100.0 * point.lossy_runs / point.runs, static_cast<double>(point.lost_packets) / point.runs);
  }
  return text;
}

// Draws the buffer as a line, and its interval as a band.
std::string Mark(const v1::Calibration& report) {
  for (const v1::Figure& figure : report.figures()) {
    if (figure.name() != "buffer" || !figure.has_value()) continue;
    return absl::StrFormat(
        "set object rectangle from %.3f, graph 0 to %.3f, graph 1 fc rgb '#dbe7f5' fs noborder behind\n"
        "set arrow from %.3f, graph 0 to %.3f, graph 1 nohead lc rgb '#1f5fa8' lw 2\n"
        "set label 'buffer %.1f KiB' at %.3f, graph 0.96 right offset -1,0 tc rgb '#1f5fa8'\n",
        figure.low() / kKib, figure.high() / kKib, figure.value() / kKib, figure.value() / kKib, figure.value() / kKib,
        figure.value() / kKib);
  }
  return "";
}

// Returns a gnuplot text in single quotes, in which only the quote itself is special.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "''"}}), "'");
}

}  // namespace

std::string LossCurveScript(const v1::Calibration& report, const std::string& svg_path) {
  return absl::StrCat("set terminal svg size 760,380 font 'sans-serif,13' background '#ffffff'\n", "set output ",
                      Quoted(svg_path), "\n$runs << END\n", Points(report), "END\n", Mark(report),
                      "set xlabel 'in the queue of the port, KiB'\n"
                      "set ylabel 'runs with loss, %'\n"
                      "set y2label 'lost packets in a run'\n"
                      "set yrange [0:105]\n"
                      "set y2range [0:*]\n"
                      "set xrange [0:*]\n"
                      "set y2tics\n"
                      "set grid ytics lc rgb '#dddddd'\n"
                      "set key bottom left\n"
                      "set border 11; set tics nomirror\n"
                      "plot $runs using 1:3 axes x1y2 with impulses lc rgb '#c77d0a' lw 3 title 'lost packets', "
                      "$runs using 1:2 with linespoints lc rgb '#b3261e' lw 2 pt 7 title 'runs with loss'\n");
}

absl::Status FindGnuplot() {
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path != nullptr ? path : "", ':')) {
    if (access(absl::StrCat(folder, "/gnuplot").c_str(), X_OK) == 0) return absl::OkStatus();
  }
  return absl::FailedPreconditionError("plot: gnuplot is missing; install the package gnuplot-nox");
}

absl::Status DrawLossCurve(const v1::Calibration& report, const std::string& svg_path) {
  const std::string script = LossCurveScript(report, svg_path);
  std::FILE* gnuplot = popen("gnuplot", "w");
  const bool written = gnuplot != nullptr && std::fwrite(script.data(), 1, script.size(), gnuplot) == script.size();
  const int status = gnuplot != nullptr ? pclose(gnuplot) : -1;
  if (written && status == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("plot: gnuplot could not write ", svg_path));
}

}  // namespace sluice
