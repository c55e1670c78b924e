#include "sluice/link_profile.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice {
namespace {

constexpr double kMinCapacity = 1e3;
constexpr double kMaxCapacity = 1e12;
constexpr int64_t kMaxBufferBytes = int64_t{1} << 40;
constexpr int64_t kEthernetFrameBytes = 1514;
constexpr int64_t kKibi = 1024;
constexpr int64_t kMaxBufferKib = 16 * kKibi;  // suggest no larger buffer; few ports have one
constexpr int64_t kMaxBufferPackets = int64_t{1} << 24;
constexpr int64_t kMaxFrameBytes = int64_t{1} << 17;
constexpr int64_t kMaxInitialWindow = int64_t{1} << 16;
constexpr absl::Duration kMaxTime = absl::Seconds(10);

constexpr int64_t kIpAndTcpHeaderBytes = 20 + 20 + 12;  // IPv4, TCP, and TCP timestamps with padding
constexpr int64_t kEthernetHeaderBytes = 14;

absl::Status OutOfBounds(absl::string_view field, const absl::AlphaNum& value, const absl::AlphaNum& low,
                         const absl::AlphaNum& high) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", it must be from ", low, " to ", high));
}

absl::Status CheckCount(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return OutOfBounds(field, value, low, high);
}

absl::Status CheckTime(absl::string_view field, absl::Duration value, absl::Duration low) {
  if (value >= low && value <= kMaxTime) return absl::OkStatus();
  return OutOfBounds(field, absl::FormatDuration(value), absl::FormatDuration(low), absl::FormatDuration(kMaxTime));
}

absl::Status CheckCapacity(double value) {
  if (value >= kMinCapacity && value <= kMaxCapacity) return absl::OkStatus();  // false for NaN
  absl::Status status = OutOfBounds("capacity_bytes_per_second", value, kMinCapacity, kMaxCapacity);
  const bool lacks_unit = value > 0 && value < kMinCapacity;
  if (!lacks_unit) return status;
  const double bits = 8 * value;
  return absl::InvalidArgumentError(
      absl::StrCat(status.message(), "; did you mean ", bits, "gbit? A rate without a unit is in bit/s"));
}

// Needs a valid frame: a port that holds less than one packet passes none, so such a buffer lacks its unit. Loopback
// has frames of 64 KB, and its default buffer is smaller.
absl::Status CheckBuffer(const LinkProfile& profile) {
  if (profile.buffer_bytes != 0 && profile.buffer_packets != 0) {
    return absl::InvalidArgumentError(absl::StrCat("buffer_bytes is ", profile.buffer_bytes, " and buffer_packets is ",
                                                   profile.buffer_packets,
                                                   ", exactly one of the two must be above 0 and the other 0"));
  }
  if (profile.buffer_packets != 0) return CheckCount("buffer_packets", profile.buffer_packets, 1, kMaxBufferPackets);
  const int64_t bytes = profile.buffer_bytes;
  const int64_t least = std::min(profile.frame_bytes, kEthernetFrameBytes);
  absl::Status status = CheckCount("buffer_bytes", bytes, least, kMaxBufferBytes);
  const bool lacks_unit = bytes > 0 && bytes < least && bytes * kKibi >= least && bytes <= kMaxBufferKib;
  if (!lacks_unit) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(status.message(), "; did you mean ", bytes, "kb (", bytes * kKibi, " bytes)?"));
}

absl::Status CheckPacket(const LinkProfile& profile) {
  if (auto status = CheckCount("packet_payload_bytes", profile.packet_payload_bytes, 1, kMaxFrameBytes); !status.ok()) {
    return status;
  }
  if (profile.frame_bytes < profile.packet_payload_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("frame_bytes is ", profile.frame_bytes,
                                                   ", it must be at least packet_payload_bytes, which is ",
                                                   profile.packet_payload_bytes));
  }
  if (auto status = CheckCount("frame_bytes", profile.frame_bytes, 1, kMaxFrameBytes); !status.ok()) return status;
  return CheckCount("ack_frame_bytes", profile.ack_frame_bytes, 1, kMaxFrameBytes);
}

}  // namespace

void LinkProfile::SetMtu(int64_t mtu_bytes) {
  // Clamp to values that Validate rejects and that cannot overflow.
  const int64_t mtu = std::clamp(mtu_bytes, -kMaxFrameBytes, 2 * kMaxFrameBytes);
  packet_payload_bytes = mtu - kIpAndTcpHeaderBytes;
  frame_bytes = mtu + kEthernetHeaderBytes;
  ack_frame_bytes = kIpAndTcpHeaderBytes + kEthernetHeaderBytes;
}

absl::Status LinkProfile::Validate() const {
  absl::Status status = CheckCapacity(capacity_bytes_per_second);
  status.Update(CheckTime("propagation_rtt", propagation_rtt, absl::Nanoseconds(1)));
  status.Update(CheckPacket(*this));
  if (status.ok()) status.Update(CheckBuffer(*this));
  status.Update(CheckTime("timer_granularity", timer_granularity, absl::Nanoseconds(1)));
  status.Update(CheckTime("timer_jitter", timer_jitter, absl::ZeroDuration()));
  status.Update(CheckCount("initial_window_packets", initial_window_packets, 1, kMaxInitialWindow));
  return status;
}

}  // namespace sluice
