#include "tools/sluice_calibrate/loss_curve.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

void AddRun(int kib, int lost_packets, v1::Calibration& report) {
  v1::LoadRun& run = *report.add_buffer_runs();
  run.set_queue_bytes(kib << 10);
  run.set_lost_packets(lost_packets);
}

v1::Calibration Report() {
  v1::Calibration report;
  AddRun(16, 0, report);
  AddRun(40, 3, report);
  AddRun(32, 0, report);
  AddRun(32, 6, report);
  v1::Figure& buffer = *report.add_figures();
  buffer.set_name("buffer");
  buffer.set_value(33 << 10);
  buffer.set_low(31 << 10);
  buffer.set_high(35 << 10);
  return report;
}

TEST(LossCurveTest, DrawsAPointForEachAmountInOrderAndMarksTheBuffer) {
  const std::string script = LossCurveScript(Report(), "/tmp/curve.svg");
  EXPECT_THAT(script, HasSubstr("16.000 0.0 0.00\n32.000 50.0 3.00\n40.000 100.0 3.00\nEND\n"));
  EXPECT_THAT(script, AllOf(HasSubstr("from 31.000, graph 0 to 35.000, graph 1"), HasSubstr("'buffer 33.0 KiB'"),
                            HasSubstr("set output '/tmp/curve.svg'\n")));
}

TEST(LossCurveTest, MarksNothingWithoutABuffer) {
  v1::Calibration report = Report();
  report.clear_figures();
  EXPECT_THAT(LossCurveScript(report, "x.svg"), Not(HasSubstr("buffer")));
}

TEST(LossCurveTest, AQuoteInAPathEndsNothing) {
  EXPECT_THAT(LossCurveScript(Report(), "it's.svg"), HasSubstr("set output 'it''s.svg'\n"));
}

TEST(LossCurveTest, GnuplotDrawsIt) {
  if (!FindGnuplot().ok()) GTEST_SKIP() << "gnuplot is missing; install the package gnuplot-nox";
  const std::filesystem::path path = absl::StrCat(::testing::TempDir(), "/sluice loss curve's.svg");
  std::filesystem::remove(path);
  const absl::Status status = DrawLossCurve(Report(), path.string());
  ASSERT_TRUE(status.ok()) << status;
  std::ifstream file(path);
  const std::string svg{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_THAT(svg, AllOf(StartsWith("<?xml"), HasSubstr("buffer 33.0 KiB"), HasSubstr("</svg>")));
  std::filesystem::remove(path);
  EXPECT_TRUE(absl::IsFailedPrecondition(DrawLossCurve(Report(), "/no/such/folder/curve.svg")));
}

// Sets the PATH of this process for the lifetime of the object.
class Path {
 public:
  explicit Path(const char* value) { setenv("PATH", value, 1); }
  ~Path() { setenv("PATH", before_.c_str(), 1); }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

 private:
  const std::string before_ = std::getenv("PATH");
};

TEST(LossCurveTest, NamesThePackageWhereGnuplotIsMissing) {
  const Path nowhere("/no/such/folder");
  EXPECT_THAT(std::string(FindGnuplot().message()), HasSubstr("gnuplot-nox"));
}

}  // namespace
}  // namespace sluice
