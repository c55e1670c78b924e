#pragma once

#include <memory>

#include "lib/rpc/worker_channels.h"

namespace sluice {

class LinkDriver;

// Follows the connections to one set of workers. gRPC waits for a call before it connects again to a worker that was
// lost, and for up to two minutes before it asks again for the address of a name that was gone; a worker that comes
// back, perhaps at another address, is to be there before it is needed. So a connection that was lost is made anew, and
// beside one whose worker stays away another one is tried that begins anew with its name: a few at a time, since the
// handshakes and look-ups of a thousand workers at once are a storm.
//
// Calls meanwhile fail at once on the connection that failed, and not late on one that is tried.
//
// Rejected: ChannelResetConnectionBackoff for names, too: in gRPC 1.51 it leaves the look-ups alone.
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
