#pragma once

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Returns whether the name of a server is a URI, such as a SPIFFE ID. A certificate has it as a URI of its
// subjectAltName; it is neither a host for SNI nor an :authority.
inline bool IsUriName(absl::string_view name) {
  return absl::StrContains(name, "://");
}

}  // namespace sluice
