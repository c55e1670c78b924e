#pragma once

#include <string_view>

namespace sluice {

// The version of this build of Sluice, as in "0.1.0"; its commit, as in "a1b2c3d4e5f6" or "a1b2c3d4e5f6-dirty", or
// empty if that is not known; and the compiler that made it, as in "gcc 12.2.0".
std::string_view BuildVersion();
std::string_view BuildCommit();
std::string_view BuildCompiler();

}  // namespace sluice
