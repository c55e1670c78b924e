#pragma once

#include <memory>
#include <string>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/generic/stream_protocol.hpp>

#include "lib/net/asio_executor.h"
#include "lib/net/executor.h"

namespace sluice {

// As Executor::Connect, with a kernel's socket in the loop of `executor`.
std::unique_ptr<StreamSocket> ConnectStream(AsioExecutor& executor, const WorkerAddress& address,
                                            const Executor::ConnectOptions& options, StreamSocketEvents& events);

// Makes a stream of a socket that a listener has accepted. OnConnected follows, once a TLS handshake is complete with a
// `tls` for listeners. `peer` names the other end in errors. `half_open` is as in Executor::ConnectOptions.
std::unique_ptr<StreamSocket> AcceptStream(AsioExecutor& executor, boost::asio::generic::stream_protocol::socket socket,
                                           const std::string& peer, std::shared_ptr<const TlsContext> tls,
                                           bool half_open, StreamSocketEvents& events);

}  // namespace sluice
