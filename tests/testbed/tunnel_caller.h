#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/testbed/block_callers.h"

namespace sluice::testbed {

// Reads from byte_servers, over one connection to each through CONNECT to the proxy `via`, and compares each byte. It
// connects in its first call, and again after a call that failed.
std::unique_ptr<BlockCaller> MakeTunnelCaller(const std::vector<std::string>& workers, const std::string& via);

}  // namespace sluice::testbed
