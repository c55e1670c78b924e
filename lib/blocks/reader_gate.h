#pragma once

#include <mutex>

#include "sluice/link.h"

namespace sluice {

// The way from any thread to the link's thread for those who may outlive their reader: consumers may hold a stream for
// longer than the reader, and for longer than the link. One a BlockReader; thread-safe.
//
// A weak reference to the link would not do: whoever locks it may be left with the last one, and a link must not be
// destroyed on a thread of its own.
class ReaderGate {
 public:
  explicit ReaderGate(Link& link) : link_(&link) {}

  // Posts what was moved out of `task`, a function of LinkCore&. False: the reader is gone, and `task` is as it was.
  template <class Task>
  bool Post(Task& task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (link_ == nullptr) return false;
    link_->Post(std::move(task));
    return true;
  }

  // For good. What was posted before still runs.
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    link_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Link* link_;  // guarded by mutex_; null: closed
};

}  // namespace sluice
