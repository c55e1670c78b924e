#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "lib/link/link_core.h"

namespace sluice {

// Where callbacks of the application run. One a link.
class Callbacks {
 public:
  virtual ~Callbacks() = default;
  // One after the other, in the order of these calls. For the link's thread only.
  virtual void Run(std::function<void()> callback) = 0;
};

// On the link's thread, at once: no hop, but a slow callback delays the link.
class InlineCallbacks final : public Callbacks {
 public:
  void Run(std::function<void()> callback) override { callback(); }
};

// On a thread of their own, which gets the callbacks of a turn of the link's thread in one go. The destructor runs
// those that are left; not on that thread.
class CallbackThread final : public Callbacks {
 public:
  explicit CallbackThread(LinkCore& core);  // the core outlives the last Run
  ~CallbackThread() override;

  void Run(std::function<void()> callback) override;
  bool on_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  void HandOver();
  void Loop();

  LinkCore& core_;
  std::vector<std::function<void()>> collected_;  // in this turn; for the link's thread only

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> handed_over_;  // guarded by mutex_
  bool stopping_ = false;                           // guarded by mutex_
  std::thread thread_;                              // last: it uses all the others
};

}  // namespace sluice
