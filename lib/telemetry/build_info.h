#pragma once

#include <string_view>

namespace sluice {

// The version of this build of Sluice, as in "0.1.0", and the compiler that made it, as in "gcc 12.2.0".
std::string_view BuildVersion();
std::string_view BuildCompiler();

}  // namespace sluice
