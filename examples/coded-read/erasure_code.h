#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace coded {

// The code of the example: 4 fragments of data and 2 of parity. Any 4 restore the stripe.
inline constexpr size_t kData = 4;
inline constexpr size_t kParity = 2;
inline constexpr size_t kFragments = kData + kParity;
inline constexpr size_t kFragmentBytes = 16 << 10;
inline constexpr size_t kStripeBytes = kData * kFragmentBytes;

using StripeFragments = std::array<std::string, kFragments>;

// Returns the fragments of at most kStripeBytes. The rest of the stripe is zeros.
StripeFragments Encode(std::string_view stripe);
// Restores kStripeBytes from at least kData fragments; an empty string is a fragment that is missing. Returns nullopt
// if there are fewer, or if one has a different size.
std::optional<std::string> Decode(StripeFragments fragments);

}  // namespace coded
