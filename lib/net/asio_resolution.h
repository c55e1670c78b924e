#pragma once

#include <memory>
#include <string>

#include "lib/net/asio_executor.h"
#include "lib/net/executor.h"

namespace sluice {

// As Executor::Resolve. The result is InvalidArgument if `target` is not an address, NotFound with the host's name if
// the host has no address, and Unavailable if it could not be looked up.
std::shared_ptr<void> StartResolution(AsioExecutor& executor, const std::string& target,
                                      Executor::OnResolved on_resolved);

}  // namespace sluice
