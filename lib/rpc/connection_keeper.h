#pragma once

#include <memory>

#include "absl/time/time.h"
#include "lib/rpc/worker_channels.h"

namespace sluice {

class LinkDriver;

// Follows the connections to one set of workers. gRPC waits for a call before it connects again to a worker that was
// lost, and for up to two minutes before it looks up a name again that was gone; a worker that comes back, perhaps at
// another address, is to be there before it is needed. So a connection that was lost is made anew, and where a worker
// stays away, its name is looked up again at once, and then every ten seconds: a few at a time, since the handshakes
// and look-ups of a thousand workers at once are a storm.
//
// Tells the link's table of workers what it sees. One a FanOutCore, on the IO thread of the link.
class ConnectionKeeper {
 public:
  // The driver and the channels outlive it.
  ConnectionKeeper(LinkDriver& driver, const WorkerChannels& channels);
  ~ConnectionKeeper();  // not on the IO thread
  ConnectionKeeper(const ConnectionKeeper&) = delete;
  ConnectionKeeper& operator=(const ConnectionKeeper&) = delete;

  // From now on connects to all workers, those too that were never connected.
  void KeepAll();
  bool keeps_all() const;

 private:
  class Loop;
  LinkDriver& driver_;
  const std::shared_ptr<Loop> loop_;
};

}  // namespace sluice
