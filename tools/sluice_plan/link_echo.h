#pragma once

#include <string>
#include <string_view>

#include "sluice/v1/link_profile.pb.h"

#include "tools/sluice_plan/sizing.h"

namespace sluice {

// Which of the values in a Read the command line has.
struct GivenFlags {
  const v1::LinkProfile& link;
  bool rto_min = false;
  std::string_view swept;  // the name of a flag, or empty
};

// One line with the link that was assumed: first the values that were given, then the defaults, both by the names of
// their flags. A value that is swept is in neither list. `batches` adds the timers, which only batches need.
std::string EchoLink(const Read& read, const GivenFlags& given, bool batches);

}  // namespace sluice
