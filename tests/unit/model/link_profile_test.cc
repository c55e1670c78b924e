#include "sluice/link_profile.h"

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr int64_t kMinInt64 = std::numeric_limits<int64_t>::min();

TEST(LinkProfileTest, DefaultsAreValidAndThoseOfAnEthernetMtu) {
  LinkProfile profile;
  EXPECT_TRUE(profile.Validate().ok());
  LinkProfile ethernet;
  ethernet.SetMtu(1500);
  EXPECT_EQ(profile, ethernet);
}

TEST(LinkProfileTest, MtuSetsPayloadFrameAndAck) {
  LinkProfile jumbo;
  jumbo.SetMtu(9000);
  EXPECT_EQ(jumbo.packet_payload_bytes, 8948);
  EXPECT_EQ(jumbo.frame_bytes, 9014);
  EXPECT_EQ(jumbo.ack_frame_bytes, 66);
  EXPECT_TRUE(jumbo.Validate().ok());
}

TEST(LinkProfileTest, MtuWithoutRoomForPayloadIsRefused) {
  LinkProfile profile;
  profile.SetMtu(53);
  EXPECT_TRUE(profile.Validate().ok());
  for (const int64_t mtu : {int64_t{52}, int64_t{0}, kMinInt64, kMaxInt64}) {
    profile.SetMtu(mtu);
    EXPECT_EQ(profile.Validate().code(), absl::StatusCode::kInvalidArgument) << mtu;
  }
}

TEST(LinkProfileTest, BufferIsEitherBytesOrPackets) {
  LinkProfile profile;
  profile.buffer_packets = 30;
  EXPECT_THAT(std::string(profile.Validate().message()),
              HasSubstr("buffer_bytes is 32768 and buffer_packets is 30, exactly one of the two must be above 0"));
  profile.buffer_bytes = 0;
  EXPECT_TRUE(profile.Validate().ok());
  profile.buffer_packets = 0;
  EXPECT_THAT(std::string(profile.Validate().message()), HasSubstr("buffer_bytes is 0, it must be from 1514 to"));
}

TEST(LinkProfileTest, ACapacityOfFewBitsLacksItsUnit) {
  LinkProfile profile;
  profile.capacity_bytes_per_second = 1.25;
  EXPECT_EQ(profile.Validate(),
            absl::InvalidArgumentError("capacity_bytes_per_second is 1.25, it must be from 1000 to 1e+12; did you mean "
                                       "10gbit? A rate without a unit is in bit/s"));
}

TEST(LinkProfileTest, ABufferOfBytesHoldsAFrameAndTheErrorSuggestsTheUnitThatIsMissing) {
  const auto error = [](int64_t buffer_bytes) {
    const LinkProfile profile{.buffer_bytes = buffer_bytes};
    return std::string(profile.Validate().message());
  };
  EXPECT_EQ(error(32), "buffer_bytes is 32, it must be from 1514 to 1099511627776; did you mean 32kb (32768 bytes)?");
  EXPECT_THAT(error(1513), HasSubstr("did you mean 1513kb (1549312 bytes)?"));
  EXPECT_EQ(error(1514), "");
  // 1 KiB and less hold no frame, either.
  EXPECT_EQ(error(1), "buffer_bytes is 1, it must be from 1514 to 1099511627776");
  EXPECT_EQ(error(-1), "buffer_bytes is -1, it must be from 1514 to 1099511627776");
  LinkProfile loopback;
  loopback.SetMtu(65535);
  EXPECT_TRUE(loopback.Validate().ok()) << "its frames are larger than the default buffer";
}

TEST(LinkProfileTest, FrameHoldsItsPayload) {
  LinkProfile profile;
  profile.frame_bytes = 1447;
  EXPECT_THAT(std::string(profile.Validate().message()),
              HasSubstr("frame_bytes is 1447, it must be at least packet_payload_bytes, which is 1448"));
  profile.frame_bytes = 1448;
  EXPECT_TRUE(profile.Validate().ok());
}

// A value outside its bound, with the field and the value that the error must name.
struct OutOfBounds {
  std::string wanted;
  std::function<void(LinkProfile&)> spoil;
  friend void PrintTo(const OutOfBounds& value, std::ostream* out) { *out << value.wanted; }
};

class LinkProfileBoundsTest : public testing::TestWithParam<OutOfBounds> {};

TEST_P(LinkProfileBoundsTest, IsRefusedWithFieldAndValue) {
  LinkProfile profile;
  GetParam().spoil(profile);
  const absl::Status status = profile.Validate();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().wanted + ", it must be from "));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, LinkProfileBoundsTest,
    testing::Values(
        OutOfBounds{"capacity_bytes_per_second is nan", [](auto& p) { p.capacity_bytes_per_second = std::nan(""); }},
        OutOfBounds{"capacity_bytes_per_second is inf", [](auto& p) { p.capacity_bytes_per_second = HUGE_VAL; }},
        OutOfBounds{"capacity_bytes_per_second is 0", [](auto& p) { p.capacity_bytes_per_second = 0; }},
        OutOfBounds{"capacity_bytes_per_second is -1", [](auto& p) { p.capacity_bytes_per_second = -1; }},
        OutOfBounds{"capacity_bytes_per_second is 999", [](auto& p) { p.capacity_bytes_per_second = 999; }},
        OutOfBounds{"buffer_bytes is -1", [](auto& p) { p.buffer_bytes = -1; }},
        OutOfBounds{"buffer_bytes is 1099511627777", [](auto& p) { p.buffer_bytes = (int64_t{1} << 40) + 1; }},
        OutOfBounds{"buffer_packets is -1",
                    [](auto& p) {
                      p.buffer_bytes = 0;
                      p.buffer_packets = -1;
                    }},
        OutOfBounds{"buffer_packets is 9223372036854775807",
                    [](auto& p) {
                      p.buffer_bytes = 0;
                      p.buffer_packets = kMaxInt64;
                    }},
        OutOfBounds{"propagation_rtt is 0", [](auto& p) { p.propagation_rtt = absl::ZeroDuration(); }},
        OutOfBounds{"propagation_rtt is -1ms", [](auto& p) { p.propagation_rtt = absl::Milliseconds(-1); }},
        OutOfBounds{"propagation_rtt is inf", [](auto& p) { p.propagation_rtt = absl::InfiniteDuration(); }},
        OutOfBounds{"packet_payload_bytes is 0", [](auto& p) { p.packet_payload_bytes = 0; }},
        OutOfBounds{"packet_payload_bytes is 131073", [](auto& p) { p.packet_payload_bytes = 131073; }},
        OutOfBounds{"frame_bytes is 131073", [](auto& p) { p.frame_bytes = 131073; }},
        OutOfBounds{"ack_frame_bytes is 0", [](auto& p) { p.ack_frame_bytes = 0; }},
        OutOfBounds{"ack_frame_bytes is 131073", [](auto& p) { p.ack_frame_bytes = 131073; }},
        OutOfBounds{"timer_granularity is 0", [](auto& p) { p.timer_granularity = absl::ZeroDuration(); }},
        OutOfBounds{"timer_granularity is 11s", [](auto& p) { p.timer_granularity = absl::Seconds(11); }},
        OutOfBounds{"timer_jitter is -1ns", [](auto& p) { p.timer_jitter = absl::Nanoseconds(-1); }},
        OutOfBounds{"timer_jitter is 11s", [](auto& p) { p.timer_jitter = absl::Seconds(11); }},
        OutOfBounds{"initial_window_packets is 0", [](auto& p) { p.initial_window_packets = 0; }},
        OutOfBounds{"initial_window_packets is 65537", [](auto& p) { p.initial_window_packets = 65537; }}));

}  // namespace
}  // namespace sluice
