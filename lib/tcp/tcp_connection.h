#pragma once

#include <optional>

#include "lib/tcp/tcp_socket.h"

namespace sluice {

// Functions on the TCP sockets of a link's connections.

// Sets the options of a socket before it connects: small frames are sent at once, and a peer that disappears is
// detected within 10 s. `random` is from 0 to 1; `receive_buffer_bytes` is as in Executor::ConnectOptions. If the
// kernel refuses an option, the connection does not use it.
void SetUpTcp(int fd, double random, int receive_buffer_bytes = 0);
// Permits the peer of a connected socket to stop reading for any time. A peer that does not acknowledge probes is still
// detected.
void LetStall(int fd);

// The value of SO_RCVBUF that makes a receive window of about this size: the kernel takes a part of it for its own
// memory.
int ReceiveBufferFor(int window_bytes);
// The receive window of one connected socket: see StreamSocket::SetReceiveWindow. Not thread-safe.
class ReceiveWindow {
 public:
  void Set(int fd, int window_bytes);

 private:
  void LearnMemory(int fd, int clamp_bytes);

  double memory_ = 1;  // SO_RCVBUF for a byte of the window
  int window_bytes_ = 0;
  int wide_bytes_ = 0;   // was advertised before, and is more; the buffer still has room for it
  int clamp_bytes_ = 0;  // the TCP_WINDOW_CLAMP that was set; another one is the kernel's
};

// Whether the kernel acknowledges received packets at once although nobody reads them. Otherwise it delays the
// acknowledgement of a window that is full, and the peer sends its last packet again (a loss probe). Set it while
// nothing is read only: the socket then counts as readable once its window is nearly full.
void AcknowledgeUnread(int fd, bool at_once);

// The address to which the client of an accepted socket has connected, if a rule of netfilter (REDIRECT) led the
// connection to this listener; nothing if no rule did.
std::optional<TcpEndpoint> OriginalDestination(int fd);

// Describes a connected socket; nothing if it is not TCP or is gone.
std::optional<TcpSocket> DescribeTcp(int fd);
// Reads the kernel's tcp_info of a socket. Returns false if the socket is gone.
bool ReadTcpInfo(int fd, TcpInfo& info);

}  // namespace sluice
