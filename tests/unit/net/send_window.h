#pragma once

#include <cstdint>

namespace sluice::testing {

// Returns the number of bytes that the peer of a TCP connection permits in flight (tcpi_snd_wnd).
uint32_t SendWindow(int fd);

}  // namespace sluice::testing
