#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sluice {

// One header of an HTTP/2 header block. Pseudo-headers such as ":path" are headers, too. Names are lower-case.
struct HeaderField {
  std::string name;
  std::string value;
  bool secret = false;  // never enters HPACK's table (RFC 7541, section 7.1.3): credentials, cookies

  friend bool operator==(const HeaderField&, const HeaderField&) = default;
};
// The size of a header in a header list, in addition to its name and value (RFC 9113, section 6.5.2).
constexpr size_t kHeaderFieldOverhead = 32;

using HeaderList = std::vector<HeaderField>;

inline size_t HeaderListBytes(const HeaderList& headers) {
  size_t bytes = 0;
  for (const HeaderField& field : headers) bytes += field.name.size() + field.value.size() + kHeaderFieldOverhead;
  return bytes;
}

}  // namespace sluice
