#include "lib/link/flush_queue.h"

#include <algorithm>

namespace sluice {
namespace {

// Calls on fewer connections are made faster than a worker can respond to the first one.
constexpr size_t kMinToFlushEarly = 8;

}  // namespace

void FlushQueue::Forget(Flushable& connection) {
  std::replace(queue_.begin(), queue_.end(), &connection, static_cast<Flushable*>(nullptr));
}

void FlushQueue::FlushEarly() {
  if (queue_.size() - next_ >= kMinToFlushEarly) FlushQueued();
}

void FlushQueue::FlushAll() {
  FlushQueued();
  queue_.clear();
  next_ = 0;
}

// A flush may queue further connections, and may call this function again.
void FlushQueue::FlushQueued() {
  while (next_ < queue_.size()) {
    Flushable* const connection = queue_[next_++];
    if (connection != nullptr) connection->Flush();
  }
}

}  // namespace sluice
