#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "lib/tcp/tcp_socket.h"

namespace sluice {

// Finds connections of the proxy itself that a rule of netfilter leads back to the proxy. Such a connection would be
// forwarded to its destination, be led back again, and so on. The proxy has both sides of it: it dials, and accepts a
// client with the same two addresses. There is one for each proxy. Used on the link's thread only.
class RedirectLoops {
 public:
  // A client whose connection was redirected, until it leaves.
  class Client {
   public:
    // `reset` ends the client. `loops` must outlive it.
    Client(RedirectLoops& loops, std::function<void()> reset) : loops_(loops), reset_(std::move(reset)) {}
    ~Client() { Leave(); }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // The source and the destination of the client's connection, or of a connection that was dialled for it. Returns
    // FailedPrecondition if this is a loop, after it has ended the client that has the other side.
    absl::Status Add(const std::string& source, const std::string& destination);
    // Add for a connection that was dialled; nothing: it is not TCP, and no rule redirects it.
    absl::Status AddDialled(const std::optional<TcpSocket>& dialled);
    void Leave();  // the client has ended

   private:
    RedirectLoops& loops_;
    const std::function<void()> reset_;
    std::vector<std::string> sides_;
  };

 private:
  absl::flat_hash_map<std::string, Client*> sides_;
};

}  // namespace sluice
