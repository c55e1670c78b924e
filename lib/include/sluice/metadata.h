#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sluice {

// Metadata of a call, in order; a key may come several times. Keys are lower-case; the values of keys that end in
// "-bin" are bytes (base64 on the wire), those of others printable ASCII.
using Metadata = std::vector<std::pair<std::string, std::string>>;

}  // namespace sluice
