#pragma once

#include <memory>
#include <string>

#include "lib/link/asio_executor.h"
#include "lib/link/executor.h"

namespace sluice {

// As Executor::Connect, with a kernel's socket in the loop of `executor`.
std::unique_ptr<StreamSocket> ConnectStream(AsioExecutor& executor, const WorkerAddress& address,
                                            std::shared_ptr<const TlsContext> tls, const std::string& server_name,
                                            StreamSocketEvents& events);

}  // namespace sluice
