#include "lib/cli/link_profile_flags.h"

#include <cstdint>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

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
    profile.connections = Connections::kPersistent;
  } else if (config.connections() == "fresh") {
    profile.connections = Connections::kFresh;
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
  // Bind setters instead of references to the fields: loading a config file may replace the strings behind them.
  const auto add_text = [&app, &config](const char* name, void (v1::LinkProfile::*set)(const std::string&),
                                        const char* help) {
    app.add_option_function<std::string>(
           name, [&config, set](const std::string& text) { (config.*set)(text); }, help)
        ->group("Bottleneck link");
  };
  const auto add_number = [&app, &config](const char* name, void (v1::LinkProfile::*set)(int64_t), const char* help) {
    app.add_option_function<int64_t>(
           name, [&config, set](int64_t number) { (config.*set)(number); }, help)
        ->check(CLI::PositiveNumber)  // because 0 means "not given" in the config
        ->group("Bottleneck link");
  };
  const auto set = &v1::LinkProfile::set_mtu;
  add_text("--capacity", &v1::LinkProfile::set_capacity<const std::string&>,
           "Rate of the last hop into the aggregator: 100mbit, 1gbit, or bits/s. Default 1gbit");
  add_text("--buffer", &v1::LinkProfile::set_buffer<const std::string&>,
           "Buffer of the switch port that feeds it: 32kb, or packets as in 100p. Default 32kb");
  add_text("--rtt", &v1::LinkProfile::set_rtt<const std::string&>, "Round trip without queueing. Default 100us");
  add_number("--mtu", set, "Sets --packet_payload, --frame and --ack if they are not given. Default 1500");
  add_number("--packet_payload", &v1::LinkProfile::set_packet_payload, "Application bytes in a full packet");
  add_number("--frame", &v1::LinkProfile::set_frame, "Bytes that a full packet takes in the buffer");
  add_number("--ack", &v1::LinkProfile::set_ack, "Bytes that an acknowledgement takes in the buffer");
  add_text("--timer_granularity", &v1::LinkProfile::set_timer_granularity<const std::string&>,
           "Step of the aggregator's timers. Default 50us");
  add_text("--jitter", &v1::LinkProfile::set_jitter<const std::string&>,
           "How late a timer fires at most. Default 200us");
  add_number("--initial_window", &v1::LinkProfile::set_initial_window,
             "Initial congestion window of fresh connections, in packets. Default 10");
  add_text("--connections", &v1::LinkProfile::set_connections<const std::string&>,
           "State of the connections to workers when a request arrives: persistent or fresh. Default persistent");
}

}  // namespace sluice
