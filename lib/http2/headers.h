#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sluice {

// One field of an HTTP/2 header block. Pseudo-header fields such as ":path" are fields, too. Names are lower-case.
struct HeaderField {
  std::string name;
  std::string value;
  bool secret = false;  // never enters HPACK's table (RFC 7541, section 7.1.3): credentials, cookies

  friend bool operator==(const HeaderField&, const HeaderField&) = default;
};
// What each field counts in a header list beyond its name and value (RFC 9113, section 6.5.2).
constexpr size_t kHeaderFieldOverhead = 32;

using HeaderList = std::vector<HeaderField>;

}  // namespace sluice
