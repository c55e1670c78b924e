#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sluice {

// The metadata of a call, in order; a key may occur several times. Keys are lower-case. Values of keys that end in
// "-bin" are any bytes (base64 on the wire); other values are printable ASCII.
using Metadata = std::vector<std::pair<std::string, std::string>>;

}  // namespace sluice
