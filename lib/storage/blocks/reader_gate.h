#pragma once

#include <mutex>

#include "sluice/link.h"

namespace sluice {

// Posts to the link's thread for objects that may outlive their reader: consumers may hold a stream for longer than the
// reader, and for longer than the link. There is one for each BlockReader. Thread-safe.
//
// Rejected: a weak reference to the link. The thread that locks it may end up with the last reference, and a link must
// not be destroyed on one of its own threads.
class ReaderGate {
 public:
  explicit ReaderGate(Link& link) : link_(&link) {}

  // Moves `task`, a function of LinkLoop&, out and posts it. Returns false, with `task` as it was, if the reader is
  // gone.
  template <class Task>
  bool Post(Task& task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (link_ == nullptr) return false;
    link_->Post(std::move(task));
    return true;
  }

  // Closes the gate permanently. Tasks that were posted before still run.
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    link_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Link* link_;  // guarded by mutex_; null after Close
};

}  // namespace sluice
