#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"

namespace sluice {

class ClientConnection;

// Finds connections of the proxy itself that a rule of netfilter leads back to the proxy. Such a connection would be
// forwarded to its destination, be led back again, and so on. The proxy has both sides of it: it dials, and accepts a
// client with the same two addresses. There is one for each proxy. Used on the link's thread only.
class RedirectLoops {
 public:
  // `ends` are the source and the destination of the client of `connection`, or of a connection that was dialled for
  // it. Returns the other connection that has the same ends, or null.
  ClientConnection* Add(const std::string& ends, ClientConnection& connection) {
    const auto [place, is_new] = ends_.try_emplace(ends, &connection);
    return is_new ? nullptr : place->second;
  }
  // Call it with all ends that were added, before the connection is destroyed.
  void Remove(const std::string& ends, const ClientConnection& connection) {
    const auto place = ends_.find(ends);
    if (place != ends_.end() && place->second == &connection) ends_.erase(place);
  }

 private:
  absl::flat_hash_map<std::string, ClientConnection*> ends_;
};

}  // namespace sluice
