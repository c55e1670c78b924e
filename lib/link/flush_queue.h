#pragma once

#include <cstddef>
#include <vector>

namespace sluice {

// An object that has bytes to write at the end of a turn.
class Flushable {
 public:
  virtual ~Flushable() = default;
  virtual void Flush() = 0;  // called by the FlushQueue
};

// The connections that have something to write, so that a turn of the link's thread costs each of them one write. There
// is one for each LinkLoop, used on the link's thread only.
class FlushQueue {
 public:
  void FlushLater(Flushable& connection) { queue_.push_back(&connection); }
  void Forget(Flushable& connection);  // for a connection that is about to be destroyed, queued or not

  // Writes the output of this turn now if many connections have some. The workers then process the first requests of a
  // fan-out while its other requests are made. Do not call it within an event of a connection.
  void FlushEarly();
  // Flushes all connections, also those that a flush queues. The loop calls it at the end of a turn.
  void FlushAll();
  bool empty() const { return queue_.empty(); }

 private:
  void FlushQueued();

  std::vector<Flushable*> queue_;  // null: forgotten
  size_t next_ = 0;                // entries before it have been flushed
};

}  // namespace sluice
