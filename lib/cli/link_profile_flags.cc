#include "lib/cli/link_profile_flags.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/cli/config_flags.h"
#include "lib/cli/units.h"

namespace sluice {
namespace {

// IPv4's smallest and largest packets (RFC 791).
constexpr int64_t kMinMtuBytes = 68;
constexpr int64_t kMaxMtuBytes = 65535;
constexpr double kBitsPerByte = 8;

absl::Status ParseSizes(const v1::LinkProfile& config, LinkProfile& profile) {
  if (config.mtu() != 0) {
    if (config.mtu() < kMinMtuBytes || config.mtu() > kMaxMtuBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("link.mtu: ", config.mtu(), " is not from ", kMinMtuBytes, " to ", kMaxMtuBytes, " bytes"));
    }
    profile.SetMtu(config.mtu());
  }
  if (config.packet_payload() != 0) profile.packet_payload_bytes = config.packet_payload();
  if (config.frame() != 0) profile.frame_bytes = config.frame();
  if (config.ack() != 0) profile.ack_frame_bytes = config.ack();
  if (config.initial_window() != 0) profile.initial_window_packets = config.initial_window();
  return absl::OkStatus();
}

absl::Status ParseBuffer(const v1::LinkProfile& config, LinkProfile& profile) {
  BufferSize buffer{.bytes = profile.buffer_bytes, .packets = profile.buffer_packets};
  absl::Status status = ParseField("link.buffer", config.buffer(), ParseBufferSize, buffer);
  profile.buffer_bytes = buffer.bytes;
  profile.buffer_packets = buffer.packets;
  return status;
}

absl::Status ParseCapacity(const v1::LinkProfile& config, LinkProfile& profile) {
  double bits_per_second = profile.capacity_bytes_per_second * kBitsPerByte;
  absl::Status status = ParseField("link.capacity", config.capacity(), ParseBitRate, bits_per_second);
  profile.capacity_bytes_per_second = bits_per_second / kBitsPerByte;
  return status;
}

absl::Status ParseTimes(const v1::LinkProfile& config, LinkProfile& profile) {
  absl::Status status = ParseField("link.rtt", config.rtt(), ParseDuration, profile.propagation_rtt);
  status.Update(
      ParseField("link.timer_granularity", config.timer_granularity(), ParseDuration, profile.timer_granularity));
  status.Update(ParseField("link.jitter", config.jitter(), ParseDuration, profile.timer_jitter));
  return status;
}

absl::Status ParseConnections(const v1::LinkProfile& config, LinkProfile& profile) {
  if (config.connections().empty()) return absl::OkStatus();
  if (config.connections() == "persistent") {
    profile.fresh_connections = false;
  } else if (config.connections() == "fresh") {
    profile.fresh_connections = true;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("link.connections: \"", config.connections(),
                                                   "\" is not a kind of connection; give persistent or fresh"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LinkProfile> ParseLinkProfile(const v1::LinkProfile& config) {
  LinkProfile profile;
  absl::Status status = ParseCapacity(config, profile);
  status.Update(ParseBuffer(config, profile));
  status.Update(ParseSizes(config, profile));
  status.Update(ParseTimes(config, profile));
  status.Update(ParseConnections(config, profile));
  if (!status.ok()) return status;
  status = profile.Validate();
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat("link: ", status.message()));
  return profile;
}

void AddLinkProfileFlags(CLI::App& app, v1::LinkProfile& config) {
  v1::FieldHelp shown_as;
  shown_as.set_group("Bottleneck link");
  ConfigFlags(config, shown_as).AddTo(app);
}

}  // namespace sluice
