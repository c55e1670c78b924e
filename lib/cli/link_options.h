#pragma once

#include <string>
#include <vector>

#include "sluice/link.h"
#include "sluice/v1/config.pb.h"
#include "sluice/v1/link_profile.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

// The parts of a config that describe the link.
struct LinkConfig {
  const v1::LinkProfile& link;
  const v1::ScheduleConfig& schedule;
  const v1::SharedLinkConfig* shared_link = nullptr;  // null: the link is not shared
  std::string application;                            // name of this process for sluice-link, if the config has none
};

// Sets the classes of a schedule from the values of a flag, NAME=WEIGHT each. Returns InvalidArgument that quotes a
// value of a different form. ParseLinkOptions checks names and weights.
absl::Status SetTrafficClasses(const std::vector<std::string>& list, v1::ScheduleConfig& schedule);

// Makes the options of the link, which have passed Link::Validate. Returns InvalidArgument that names the field as in
// the config file.
absl::StatusOr<Link::Options> ParseLinkOptions(const LinkConfig& config);

// The same for the config of a program with these fields.
template <class Config>
absl::StatusOr<Link::Options> ParseLinkOptions(const Config& config, const std::string& application) {
  return ParseLinkOptions(LinkConfig{.link = config.link(),
                                     .schedule = config.schedule(),
                                     .shared_link = config.has_shared_link() ? &config.shared_link() : nullptr,
                                     .application = application});
}

}  // namespace sluice
