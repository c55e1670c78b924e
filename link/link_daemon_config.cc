#include "link/link_daemon_config.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

#include <grp.h>

#include "sluice/plan.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/cli/link_profile_flags.h"
#include "lib/cli/units.h"
#include "lib/net/host_port.h"
#include "lib/scheduling/budget.h"
#include "lib/sharing/link_hello.h"
#include "lib/sharing/packet_socket.h"

namespace sluice {
namespace {

constexpr absl::Duration kMinLease = absl::Milliseconds(20);  // leaves time for several reports
constexpr absl::Duration kMaxLease = absl::Seconds(10);
constexpr std::chrono::milliseconds kGraceAfterLeases{100};

absl::StatusOr<mode_t> ParseMode(std::string_view text) {
  constexpr mode_t kMost = 0777;
  mode_t mode = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '7' || mode > kMost) {
      return absl::InvalidArgumentError(absl::StrCat("\"", std::string(text), "\" is not a file mode such as 0660"));
    }
    mode = mode * 8 + static_cast<mode_t>(digit - '0');
  }
  if (mode > 0 && mode <= kMost) return mode;
  return absl::InvalidArgumentError(absl::StrCat("\"", std::string(text), "\" is not a file mode such as 0660"));
}

absl::StatusOr<std::optional<gid_t>> ParseGroup(std::string_view text) {
  const std::string name(text);
  if (gid_t gid = 0; absl::SimpleAtoi(name, &gid)) return std::optional(gid);
  if (const group* entry = getgrnam(name.c_str())) return std::optional(entry->gr_gid);
  return absl::InvalidArgumentError(absl::StrCat("there is no group \"", name, "\""));
}

absl::Status ParseSocket(const v1::LinkDaemonConfig& config, LeaseServer::Options& options) {
  options.socket = config.socket();
  options.allowed_uids.assign(config.allowed_uids().begin(), config.allowed_uids().end());
  absl::Status status = CheckSocketPath("socket", config.socket());
  if (config.has_max_uid_weight()) {
    options.max_uid_weight = config.max_uid_weight();
    const absl::Status weight = CheckWeight(config.max_uid_weight());
    if (!weight.ok()) status.Update(absl::InvalidArgumentError(absl::StrCat("max_uid_", weight.message())));
  }
  status.Update(ParseField("socket_mode", config.socket_mode(), ParseMode, options.socket_mode));
  status.Update(ParseField("socket_group", config.socket_group(), ParseGroup, options.socket_group));
  return status;
}

absl::Status ParseShares(const v1::LinkDaemonConfig& config, const LinkProfile& profile,
                         LinkDivider::Options& options) {
  options.budget_bytes = BufferBudgetBytes(profile);
  options.frame_bytes = profile.frame_bytes;
  absl::Duration lease_time = absl::FromChrono(options.lease_time);
  absl::Status status = ParseField("budget", config.budget(), ParseByteSize, options.budget_bytes);
  status.Update(ParseField("mode", config.mode(), ParseSharingMode, options.mode));
  status.Update(ParseField("lease_time", config.lease_time(), ParseDuration, lease_time));
  if (lease_time < kMinLease || lease_time > kMaxLease) {
    status.Update(absl::InvalidArgumentError(absl::StrCat("lease_time: ", absl::FormatDuration(lease_time),
                                                          " is outside of ", absl::FormatDuration(kMinLease), " to ",
                                                          absl::FormatDuration(kMaxLease))));
  }
  options.lease_time = absl::ToChronoNanoseconds(lease_time);
  options.drain_time = DrainTime(profile, options.budget_bytes);
  // A hung process may use a lease of the previous daemon for this long.
  options.start_grace = std::max(options.start_grace, options.lease_time + kGraceAfterLeases);
  status.Update(LinkDivider::Validate(options));
  return status;
}

}  // namespace

absl::StatusOr<LinkDaemonOptions> ParseLinkDaemonConfig(const v1::LinkDaemonConfig& config) {
  const absl::StatusOr<LinkProfile> profile = ParseLinkProfile(config.link());
  if (!profile.ok()) return profile.status();
  LinkDaemonOptions options{.admin = config.admin(), .profile = *profile, .server = {}};
  absl::Status status = ParseSocket(config, options.server);
  status.Update(ParseShares(config, *profile, options.server.shares));
  if (config.link().buffer().empty() && config.budget().empty()) {
    status.Update(absl::InvalidArgumentError("link.buffer is empty; give it, or a budget"));
  }
  if (!config.admin().empty()) {
    const absl::Status admin = ParseHostPort(config.admin()).status();
    if (!admin.ok()) status.Update(absl::InvalidArgumentError(absl::StrCat("admin: ", admin.message())));
  }
  if (!status.ok()) return status;
  return options;
}

}  // namespace sluice
