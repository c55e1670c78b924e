#include "tools/sluice_calibrate/report.h"

#include <sstream>
#include <string>
#include <vector>

#include <google/protobuf/util/json_util.h>

#include "sluice/v1/config.pb.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/cli/link_profile_flags.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kOnsetBytes = 35'000;

// A link of 100 Mbit/s whose losses begin at 35,000 bytes in flight.
Measurements Measured() {
  Measurements measured;
  measured.path = {.hosts = 2,
                   .counts_losses = true,
                   .mtu_bytes = 1500,
                   .packet_payload_bytes = 1448,
                   .frame_bytes = 1514,
                   .ack_frame_bytes = 66};
  for (int i = 1; i <= 1000; ++i) measured.timers.lateness.push_back(absl::Microseconds(i));
  measured.timers.steps.assign(100, absl::Microseconds(20));
  measured.round_trips.kernel = {absl::Microseconds(90), absl::Microseconds(80), absl::Microseconds(100)};
  measured.round_trips.answers = {absl::Microseconds(200), absl::Microseconds(210), absl::Microseconds(220)};
  for (int i = 0; i < 20; ++i) {
    measured.rate_loops.push_back({.in_flight_bytes = 16'000, .windows = {{500'000, absl::Milliseconds(40)}}});
    const int64_t bytes = kOnsetBytes - 10'000 + 1000 * i;
    measured.buffer_loops.push_back({.in_flight_bytes = bytes, .lost_packets = bytes > kOnsetBytes ? 4 : 0});
  }
  measured.elapsed = absl::Seconds(12);
  return measured;
}

const v1::Figure* Find(const v1::Calibration& report, const std::string& name) {
  for (const v1::Figure& figure : report.figures()) {
    if (figure.name() == name) return &figure;
  }
  return nullptr;
}

TEST(ReportTest, HasEveryFigureWithItsUnitAndInterval) {
  const v1::Calibration report = MakeReport(Measured());
  const std::pair<const char*, const char*> figures[] = {{"capacity", "bit/s"},
                                                         {"buffer", "B"},
                                                         {"rtt_min", "s"},
                                                         {"rtt_median", "s"},
                                                         {"answer_time_min", "s"},
                                                         {"answer_time_median", "s"},
                                                         {"timer_granularity", "s"},
                                                         {"timer_lateness_p50", "s"},
                                                         {"timer_lateness_p90", "s"},
                                                         {"timer_lateness_p99", "s"},
                                                         {"timer_lateness_p999", "s"},
                                                         {"timer_lateness_max", "s"}};
  for (const auto& [name, unit] : figures) {
    const v1::Figure* figure = Find(report, name);
    ASSERT_NE(figure, nullptr) << name;
    EXPECT_EQ(figure->unit(), unit) << name;
    EXPECT_TRUE(figure->has_value()) << name;
    EXPECT_LE(figure->low(), figure->value()) << name;
    EXPECT_GE(figure->high(), figure->value()) << name;
    EXPECT_GT(figure->samples(), 0) << name;
  }
  EXPECT_EQ(report.figures_size(), std::size(figures));
  EXPECT_EQ(report.buffer_runs_size(), 20);
  EXPECT_TRUE(IsComplete(report));
}

TEST(ReportTest, TheLinkIsOneThatTheModelTakes) {
  const auto profile = ParseLinkProfile(MakeReport(Measured()).link());
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->capacity_bytes_per_second, 12.5e6);
  // Half of the responses take 210 us, in which the port sends 2625 bytes. The packet that it is sending does not
  // count.
  EXPECT_NEAR(static_cast<double>(profile->buffer_bytes), kOnsetBytes + 500 - (2625 - 1514), 10);
  EXPECT_EQ(profile->propagation_rtt, absl::Microseconds(80));
  EXPECT_EQ(profile->timer_granularity, absl::Microseconds(20));
  EXPECT_EQ(profile->timer_jitter, absl::Microseconds(990)) << "the 99th percentile";
  EXPECT_EQ(profile->packet_payload_bytes, 1448);
  EXPECT_EQ(profile->frame_bytes, 1514);
  EXPECT_FALSE(profile->fresh_connections);
}

TEST(ReportTest, PacketsThatTheMtuDoesNotTellAreGivenOneByOne) {
  Measurements measured = Measured();
  measured.path.packet_payload_bytes = 1428;  // IPv6
  measured.path.ack_frame_bytes = 86;
  const v1::LinkProfile link = MakeReport(measured).link();
  EXPECT_EQ(link.mtu(), 0);
  const auto profile = ParseLinkProfile(link);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->packet_payload_bytes, 1428);
  EXPECT_EQ(profile->frame_bytes, 1514);
  EXPECT_EQ(profile->ack_frame_bytes, 86);
}

TEST(ReportTest, LeavesOutOfTheLinkWhatIsNotDetermined) {
  Measurements measured = Measured();
  measured.no_buffer = "nobody looked";
  const v1::Calibration report = MakeReport(measured);
  EXPECT_FALSE(Find(report, "buffer")->has_value());
  EXPECT_EQ(Find(report, "buffer")->note(), "nobody looked");
  EXPECT_THAT(report.link().buffer(), IsEmpty());
  EXPECT_THAT(report.link().capacity(), Not(IsEmpty()));
  EXPECT_FALSE(IsComplete(report));
}

TEST(ReportTest, ForPeopleItSaysEverythingOnceAndWhyThingsAreMissing) {
  Measurements measured = Measured();
  measured.no_rate = "no link";
  measured.no_buffer = "no port";
  measured.path.notes = {"left out: worker a:1: gone"};
  std::ostringstream out;
  PrintReport(MakeReport(measured), out);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("capacity             not determined: no link\n"),
                               HasSubstr("buffer               not determined: no port\n"),
                               HasSubstr("note: left out: worker a:1: gone\n"), HasSubstr("Measured in 12 s"),
                               HasSubstr("\"rtt\": \"80us\"")));
  std::ostringstream complete;
  PrintReport(MakeReport(Measured()), complete);
  EXPECT_THAT(complete.str(), AllOf(HasSubstr("100 Mbit/s"), HasSubstr("33.6 KiB"), HasSubstr("80 us to 100 us")));
}

TEST(ReportTest, TheJsonIsThatOfItsMessageAndTheProfileIsAConfig) {
  const v1::Calibration report = MakeReport(Measured());
  EXPECT_THAT(ReportJson(report), HasSubstr("\"timer_granularity\": \"20us\"")) << "names as in config files";
  v1::Calibration read;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(ReportJson(report), &read).ok());
  EXPECT_EQ(read.SerializeAsString(), report.SerializeAsString());
  v1::AggregatorConfig config;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(LinkConfigJson(report), &config).ok());
  EXPECT_EQ(config.link().SerializeAsString(), report.link().SerializeAsString());
}

}  // namespace
}  // namespace sluice
