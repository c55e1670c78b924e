#pragma once

#include <functional>

#include <grpcpp/support/channel_arguments.h>

namespace sluice {

// What is done to each socket of a channel before it is connected; on any thread. False: gRPC gives the connection up.
using SocketSetup = std::function<bool(int fd)>;

// False where the gRPC that this was compiled with has no known way to reach the sockets.
bool CanSetUpSockets();

// For all channels that are made with `arguments`; takes the place of the setup before. Nothing where the sockets
// cannot be reached.
void SetUpSockets(SocketSetup setup, grpc::ChannelArguments& arguments);

// An integer option of setsockopt. False: the kernel refuses it.
bool SetSocketOption(int fd, int level, int option, int value);
bool IsTcpOverIp(int fd);

}  // namespace sluice
