#pragma once

#include <memory>
#include <string>

#include "lib/link/asio_executor.h"
#include "lib/link/executor.h"

namespace sluice {

// As Executor::Resolve. InvalidArgument for what is no address, NotFound that names the host for a name that has
// none, Unavailable for one that could not be looked up.
std::shared_ptr<void> StartResolution(AsioExecutor& executor, const std::string& target,
                                      Executor::OnResolved on_resolved);

}  // namespace sluice
