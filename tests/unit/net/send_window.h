#pragma once

#include <cstdint>

namespace sluice::testing {

// Bytes that the other side of a TCP connection lets this one have under way (tcpi_snd_wnd).
uint32_t SendWindow(int fd);

}  // namespace sluice::testing
