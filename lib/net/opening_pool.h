#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include <boost/intrusive/list.hpp>

namespace sluice {

// The connections whose clients are not known yet. For a proxy, they have not completed their TLS handshake, or not
// begun HTTP/2, CONNECT or SOCKS5. For an RpcServer, they have sent no byte. They have a small share of the
// connections, so strangers who only connect take no place from known clients. Each listener has a pool of its own.
// There is one object for each server. Not thread-safe.
class OpeningPool {
 private:
  struct Listener;

 public:
  // One such connection.
  class Place : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
   public:
    explicit Place(std::function<void()> end) : end_(std::move(end)) {}
    ~Place() { Leave(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    void Leave();  // the client is known, or gone

   private:
    friend class OpeningPool;

    const std::function<void()> end_;
    Listener* listener_ = nullptr;  // null: not in the pool
  };

  // The maximum number of connections in the pool of one listener.
  void SetLimit(size_t limit) { limit_ = limit; }
  // Above the limit, the oldest place of this listener ends: a client that is alive does not take long. Returns how
  // many have ended.
  size_t Add(const std::string& listener, Place& place);
  // Ends the oldest place of this listener. Returns false if there is none.
  bool EndOldest(const std::string& listener) { return EndOldest(listeners_[listener]); }

 private:
  struct Listener {
    boost::intrusive::list<Place, boost::intrusive::constant_time_size<false>> places;  // the oldest first
    size_t count = 0;
  };

  static bool EndOldest(Listener& pool);

  size_t limit_ = 0;
  std::map<std::string, Listener> listeners_;
};

}  // namespace sluice
