#include "tools/sluice_calibrate/calibration.h"

#include <string>
#include <tuple>
#include <vector>

#include "sluice/plan.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/calibrate/simulated_port.h"
#include "tools/sluice_calibrate/report.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SimulatedPort;

constexpr double kMbit = 125'000;  // bytes per second

const v1::Figure& FigureOf(const v1::Calibration& report, const std::string& name) {
  for (const v1::Figure& figure : report.figures()) {
    if (figure.name() == name) return figure;
  }
  ADD_FAILURE() << "no figure " << name;
  return v1::Figure::default_instance();
}

// A calibration of a simulated port, and its report.
struct Calibrated {
  explicit Calibrated(const SimulatedPort::Options& options, const CalibrationOptions& limits = {}) : port(options) {
    const auto measured = Calibrate(port, limits);
    if (!measured.ok()) {
      ADD_FAILURE() << measured.status();
      return;
    }
    elapsed = measured->elapsed;
    report = MakeReport(*measured);
  }

  double ErrorPercent(const std::string& name, double truth) const {
    return 100 * (FigureOf(report, name).value() / truth - 1);
  }
  const std::string& Note(const std::string& name) const { return FigureOf(report, name).note(); }
  bool Has(const std::string& name) const { return FigureOf(report, name).has_value(); }

  SimulatedPort port;
  absl::Duration elapsed;
  v1::Calibration report;
};

class CalibrationOfPortsTest : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(CalibrationOfPortsTest, FindsRateAndBuffer) {
  const auto [mbit, kib] = GetParam();
  SimulatedPort::Options options = {.rate_bytes_per_second = mbit * kMbit, .buffer_bytes = kib << 10};
  options.access_rate_bytes_per_second = 10 * options.rate_bytes_per_second;
  options.bucket_bytes = 3 * 1514;  // as on the test network
  const Calibrated calibrated(options);
  EXPECT_NEAR(calibrated.ErrorPercent("capacity", mbit * 1e6), 0, 1.5);
  EXPECT_NEAR(calibrated.ErrorPercent("buffer", static_cast<double>(options.buffer_bytes)), 0, 10);
  EXPECT_LE(FigureOf(calibrated.report, "buffer").low(), 1.02 * static_cast<double>(options.buffer_bytes));
  EXPECT_GE(FigureOf(calibrated.report, "buffer").high(), 0.98 * static_cast<double>(options.buffer_bytes));
  EXPECT_NEAR(calibrated.ErrorPercent("rtt_min", absl::ToDoubleSeconds(options.rtt)), 0, 0.1);
  EXPECT_LT(calibrated.elapsed, absl::Seconds(60));
  EXPECT_TRUE(IsComplete(calibrated.report));
}

INSTANTIATE_TEST_SUITE_P(Ports, CalibrationOfPortsTest,
                         ::testing::Combine(::testing::Values(50, 100, 200), ::testing::Values(16, 32, 64, 128)),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "mbit" +
                                  std::to_string(std::get<1>(info.param)) + "kb";
                         });

TEST(CalibrationTest, FindsTheBufferOfAPortAsFastAsTheLinksOfItsWorkers) {
  const Calibrated calibrated({.access_rate_bytes_per_second = 12.5e6});
  EXPECT_NEAR(calibrated.ErrorPercent("buffer", 32 << 10), 0, 10);
}

TEST(CalibrationTest, FindsALargeBufferOfAFastLink) {
  const Calibrated calibrated(
      {.rate_bytes_per_second = 1250e6, .buffer_bytes = 1 << 20, .access_rate_bytes_per_second = 1250e6});
  EXPECT_NEAR(calibrated.ErrorPercent("capacity", 10e9), 0, 2);
  EXPECT_NEAR(calibrated.ErrorPercent("buffer", 1 << 20), 0, 15);
}

TEST(CalibrationTest, FindsTheBufferOfALongPath) {
  const Calibrated calibrated({.least_gap = absl::Milliseconds(10), .mean_extra_gap = absl::Microseconds(100)});
  EXPECT_NEAR(calibrated.ErrorPercent("capacity", 100e6), 0, 2);
  EXPECT_NEAR(calibrated.ErrorPercent("buffer", 32 << 10), 0, 15);
}

TEST(CalibrationTest, ATokenBucketIsNotTakenForBuffer) {
  const Calibrated calibrated({.bucket_bytes = 32 << 10});
  EXPECT_NEAR(calibrated.ErrorPercent("buffer", 32 << 10), 0, 10);
}

TEST(CalibrationTest, SeesThroughLossesOfOtherTraffic) {
  const Calibrated calibrated({.other_loss = 5e-5});
  EXPECT_NEAR(calibrated.ErrorPercent("buffer", 32 << 10), 0, 15);
}

TEST(CalibrationTest, SaysThatPacketsAreLostAtAnyAmount) {
  const Calibrated calibrated({.other_loss = 0.003});
  EXPECT_FALSE(calibrated.Has("buffer"));
  EXPECT_THAT(calibrated.Note("buffer"), HasSubstr("other traffic on the link"));
  EXPECT_THAT(calibrated.report.link().buffer(), IsEmpty());
}

TEST(CalibrationTest, DeterminesNothingOfALinkThatIsMostlyDown) {
  const Calibrated calibrated({.other_loss = 0.2});
  EXPECT_THAT(calibrated.Note("capacity"), HasSubstr("windows without loss"));
  EXPECT_THAT(calibrated.Note("buffer"), HasSubstr("the rate is not known"));
}

TEST(CalibrationTest, SaysThatNoLossShowedUpToTheBound) {
  const Calibrated calibrated({.buffer_bytes = 1 << 30}, {.max_in_flight_bytes = 256 << 10});
  EXPECT_FALSE(calibrated.Has("buffer"));
  EXPECT_THAT(calibrated.Note("buffer"), HasSubstr("larger than 2"));
  EXPECT_THAT(calibrated.report.link().buffer(), IsEmpty());
  EXPECT_NEAR(calibrated.ErrorPercent("capacity", 100e6), 0, 1.5);
  EXPECT_FALSE(IsComplete(calibrated.report));
}

TEST(CalibrationTest, NeverPutsMoreThanTheBoundOnTheWay) {
  const Calibrated calibrated({.buffer_bytes = 1 << 30}, {.max_in_flight_bytes = 256 << 10});
  EXPECT_LE(calibrated.port.most_in_flight_bytes(), 256 << 10);
  EXPECT_GE(calibrated.port.most_in_flight_bytes(), 240 << 10);
}

TEST(CalibrationTest, StopsWhenTheTimeIsUpAndSaysSo) {
  const Calibrated calibrated({}, {.time_limit = absl::Seconds(6)});
  EXPECT_LT(calibrated.elapsed, absl::Seconds(9));
  EXPECT_THAT(calibrated.report.notes(), Contains(HasSubstr("the time was up after 6 s")));
  EXPECT_TRUE(calibrated.Has("timer_lateness_p99"));
}

TEST(CalibrationTest, MeasuresOnlyTimersAndRoundTripsOnOneHost) {
  const Calibrated calibrated({.same_host = true});
  EXPECT_THAT(calibrated.port.loops(), IsEmpty());
  EXPECT_THAT(calibrated.Note("capacity"), HasSubstr("passes no port"));
  EXPECT_THAT(calibrated.Note("buffer"), HasSubstr("passes no port"));
  EXPECT_TRUE(calibrated.Has("rtt_min"));
  EXPECT_TRUE(calibrated.Has("timer_lateness_p99"));
}

TEST(CalibrationTest, WantsWorkersOnTwoHostsForTheBuffer) {
  const Calibrated calibrated({.hosts = 1});
  EXPECT_TRUE(calibrated.Has("capacity"));
  EXPECT_THAT(calibrated.Note("buffer"), HasSubstr("all workers are on one host"));
}

TEST(CalibrationTest, WantsTheWorkersCountsOfLossesForTheBuffer) {
  const Calibrated calibrated({.counts_losses = false});
  EXPECT_TRUE(calibrated.Has("capacity"));
  EXPECT_THAT(calibrated.Note("buffer"), HasSubstr("do not tell what was lost"));
}

TEST(CalibrationTest, DoesNotTakeABusyProcessForALink) {
  const Calibrated calibrated({.buffer_bytes = 1 << 30, .process_share = 0.95}, {.max_in_flight_bytes = 128 << 10});
  EXPECT_FALSE(calibrated.Has("capacity"));
  EXPECT_THAT(calibrated.Note("capacity"), HasSubstr("at least 100 Mbit/s"));
}

TEST(CalibrationTest, WarnsOfABusyHost) {
  const Calibrated calibrated({.host_share = 0.99});
  EXPECT_THAT(calibrated.report.notes(), Contains(HasSubstr("busy 99 % of the time")));
}

TEST(CalibrationTest, TellsItsProgress) {
  double last = -1;
  std::vector<std::string> stages;
  const Calibrated calibrated({}, {.on_progress = [&](double share, const std::string& stage) {
                                EXPECT_GE(share, last) << stage;
                                EXPECT_LE(share, 1) << stage;
                                last = share;
                                stages.push_back(stage);
                              }});
  EXPECT_THAT(stages, Contains(HasSubstr("timers")));
  EXPECT_THAT(stages, Contains(HasSubstr("rate: ")));
  EXPECT_THAT(stages, Contains(HasSubstr("buffer: ")));
}

// Fails at the nth call of any kind.
class FailingProber final : public Prober {
 public:
  explicit FailingProber(int calls) : calls_left_(calls) {}
  absl::StatusOr<PathFacts> LookAtPath() override { return Or(&Prober::LookAtPath); }
  absl::StatusOr<TimerSamples> MeasureTimers() override { return Or(&Prober::MeasureTimers); }
  absl::StatusOr<RoundTripSamples> MeasureRoundTrips() override { return Or(&Prober::MeasureRoundTrips); }
  absl::StatusOr<LoopSample> RunLoop(const ClosedLoop& loop) override {
    if (calls_left_-- == 0) return absl::CancelledError("interrupted");
    return port_.RunLoop(loop);
  }
  absl::Duration Elapsed() const override { return port_.Elapsed(); }
  bool has_failed() const { return calls_left_ < 0; }

 private:
  template <class T>
  absl::StatusOr<T> Or(absl::StatusOr<T> (Prober::*measure)()) {
    if (calls_left_-- == 0) return absl::CancelledError("interrupted");
    return (port_.*measure)();
  }

  SimulatedPort port_{{}};
  int calls_left_;
};

TEST(CalibrationTest, EndsWithTheErrorOfTheProberWhereverItComes) {
  int calls = 0;
  for (bool failed = true; failed; ++calls) {
    FailingProber prober(calls);
    const auto measured = Calibrate(prober, {});
    failed = prober.has_failed();
    EXPECT_EQ(measured.ok(), !failed) << calls;
    if (failed) {
      EXPECT_TRUE(absl::IsCancelled(measured.status())) << calls;
    }
  }
  EXPECT_GT(calls, 20) << "that many calls make a calibration";
}

TEST(PlanLoopTest, HasTheWantedBytesInFlightInBurstsOfANewConnection) {
  const LinkProfile packets;
  for (const double rate : {0.0, 50 * kMbit, 200 * kMbit, 1000 * kMbit}) {
    for (int64_t bytes = 8 << 10; bytes <= 512 << 10; bytes *= 2) {
      const ClosedLoop loop = PlanLoop(bytes, rate, packets);
      const int64_t planned = loop.in_flight * WireBytes(packets, loop.payload_bytes);
      EXPECT_LE(planned, bytes) << bytes << " at " << rate;
      EXPECT_GE(planned, 0.8 * static_cast<double>(bytes)) << bytes << " at " << rate;
      EXPECT_LE(Packets(packets, loop.payload_bytes), 10) << bytes << " at " << rate;
      EXPECT_GE(loop.duration, absl::Milliseconds(150));
    }
  }
}

TEST(PlanLoopTest, AsksForFewAnswersOfAFastLinkAndForWholeRounds) {
  const LinkProfile packets;
  EXPECT_EQ(PlanLoop(24 << 10, 200 * kMbit, packets).in_flight, 3);
  EXPECT_GT(PlanLoop(24 << 10, 50 * kMbit, packets).in_flight, 6);
  EXPECT_GE(PlanLoop(1 << 20, 100 * kMbit, packets).duration, absl::Seconds(1));
  EXPECT_LE(PlanLoop(8 << 20, 1 * kMbit, packets).duration, absl::Seconds(3));
}

}  // namespace
}  // namespace sluice
