#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/net/asio_executor.h"
#include "lib/net/executor.h"
#include "lib/net/passed_sockets.h"

namespace sluice {

// A connection that a listener has accepted.
struct AcceptedConnection {
  // Makes its stream, as AcceptStream. If neither this nor `release` is called, the connection is closed.
  std::function<std::unique_ptr<StreamSocket>(StreamSocketEvents& events)> start;
  // Returns its socket instead, which the caller must close: a file descriptor that does not block, with TCP_NODELAY.
  std::function<int()> release;
  bool local = false;              // the client is on this host: a Unix socket, or one end is an address of loopback
  std::optional<uint32_t> client;  // user id of the client, on a Unix socket (SO_PEERCRED of unix(7))
  std::string peer;                // the client's address: "10.0.0.7:41234", "a client" of a Unix socket
  std::string original = {};       // to which the client has connected before a redirect; empty: there was none
};

// Accepts connections on one address, on the thread of an executor. It waits while no file descriptors are free. There
// is one for each address. Made and destroyed on the executor's thread.
class AsioListener {
 public:
  using OnAccept = std::function<void(AcceptedConnection connection)>;
  struct Options {
    uint32_t unix_mode = 0600;              // of the socket of a path
    std::shared_ptr<const TlsContext> tls;  // for listeners; null: plaintext
    bool half_open = false;                 // of the streams, as in Executor::ConnectOptions
    bool redirected = false;                // find out AcceptedConnection::original
    // A socket of these that is bound to the address is used instead of a new one; null: there are none. Only Listen
    // uses them.
    std::shared_ptr<PassedSockets> passed = nullptr;
  };

  // Listens on an address of ParseSocketAddress for kListen. It replaces a socket file on which no process listens.
  // Returns InvalidArgument for another address, Unavailable if the address is in use or does not belong to this host.
  static absl::StatusOr<std::unique_ptr<AsioListener>> Listen(AsioExecutor& executor, const std::string& address,
                                                              Options options, OnAccept on_accept);
  // The InvalidArgument of Listen. Opens nothing.
  static absl::Status Validate(const std::string& address);
  // Removes the socket file that Listen has made, unless another socket is there now.
  ~AsioListener();
  AsioListener(const AsioListener&) = delete;
  AsioListener& operator=(const AsioListener&) = delete;

  // Call it in OnAccept: accepts no further connection for this time. The kernel keeps them, and their first bytes.
  void Pause(std::chrono::milliseconds time);
  // Accepts no further connection. Call it before the destructor, in an earlier task of the executor: connections that
  // were already taken from the kernel come to OnAccept in between, and the destructor would close them.
  void Stop();

  const std::string& address() const { return address_; }  // with the real port
  // All addresses of this listener in the form of Executor::Resolve. A listener on all addresses has each address of
  // the host.
  std::vector<std::string> AllAddresses() const;

 private:
  class Acceptor;
  AsioListener(std::shared_ptr<Acceptor> acceptor, std::string address);

  const std::shared_ptr<Acceptor> acceptor_;
  const std::string address_;
};

// The IP addresses of this host's network interfaces, at this time.
std::vector<std::string> HostAddresses();

}  // namespace sluice
