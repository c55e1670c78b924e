#include "tools/sluice_plan/link_echo.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/cli/units.h"

namespace sluice {
namespace {

struct Echo {
  std::string_view flag;
  std::string value;
  bool given = false;
};

std::string Buffer(const LinkProfile& profile) {
  return profile.buffer_packets > 0 ? absl::StrCat(profile.buffer_packets, " packets")
                                    : FormatByteSize(profile.buffer_bytes);
}

void AddPacket(const LinkProfile& profile, const v1::LinkProfile& link, std::vector<Echo>& echoes) {
  constexpr int64_t kDefaultMtu = 1500;
  const bool sizes_given = link.packet_payload() != 0 || link.frame() != 0 || link.ack() != 0;
  if (link.mtu() != 0 || !sizes_given) {
    echoes.push_back({"mtu", absl::StrCat(link.mtu() != 0 ? link.mtu() : kDefaultMtu), link.mtu() != 0});
  }
  if (!sizes_given) return;
  echoes.push_back({"packet_payload", absl::StrCat(profile.packet_payload_bytes), link.packet_payload() != 0});
  echoes.push_back({"frame", absl::StrCat(profile.frame_bytes), link.frame() != 0});
  echoes.push_back({"ack", absl::StrCat(profile.ack_frame_bytes), link.ack() != 0});
}

std::vector<Echo> Echoes(const Read& read, const GivenFlags& given, bool batches) {
  const LinkProfile& profile = read.profile;
  const v1::LinkProfile& link = given.link;
  std::vector<Echo> echoes = {
      {"capacity", FormatBitRate(8 * profile.capacity_bytes_per_second), !link.capacity().empty()},
      {"buffer", Buffer(profile), !link.buffer().empty()},
      {"rtt", sluice::FormatDuration(profile.propagation_rtt), !link.rtt().empty()}};
  AddPacket(profile, link, echoes);
  if (batches) {
    echoes.push_back(
        {"timer_granularity", sluice::FormatDuration(profile.timer_granularity), !link.timer_granularity().empty()});
    echoes.push_back({"jitter", sluice::FormatDuration(profile.timer_jitter), !link.jitter().empty()});
  }
  echoes.push_back({"connections", profile.fresh_connections ? "fresh" : "persistent", !link.connections().empty()});
  echoes.push_back({"initial_window", absl::StrCat(profile.initial_window_packets), link.initial_window() != 0});
  echoes.push_back({"rto_min", sluice::FormatDuration(read.unscheduled.rto_min), given.rto_min});
  return echoes;
}

}  // namespace

std::string EchoLink(const Read& read, const GivenFlags& given, bool batches) {
  std::vector<std::string> values;
  std::vector<std::string> defaults;
  for (const Echo& echo : Echoes(read, given, batches)) {
    if (echo.flag == given.swept) continue;
    (echo.given ? values : defaults)
        .push_back(absl::StrCat(absl::string_view(echo.flag.data(), echo.flag.size()), " ", echo.value));
  }
  const std::string given_text = absl::StrJoin(values, ", ");
  const std::string default_text = absl::StrJoin(defaults, ", ");
  if (defaults.empty()) return absl::StrCat("Link: ", given_text, ".\n");
  if (values.empty()) return absl::StrCat("Link, defaults: ", default_text, ".\n");
  return absl::StrCat("Link: ", given_text, ". Defaults: ", default_text, ".\n");
}

}  // namespace sluice
