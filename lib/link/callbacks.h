#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "lib/link/link_core.h"

namespace sluice {

// Runs the callbacks of the application. There is one for each link.
class Callbacks {
 public:
  virtual ~Callbacks() = default;
  // Runs callbacks one after the other, in the order of these calls. Called on the link's thread only.
  virtual void Run(std::function<void()> callback) = 0;
};

// Runs callbacks on the link's thread, at once: there is no hop, but a slow callback delays the link.
class InlineCallbacks final : public Callbacks {
 public:
  void Run(std::function<void()> callback) override { callback(); }
};

// Runs callbacks on a thread of their own, which gets all callbacks of a turn of the link's thread in one go. The
// destructor runs those that are left; do not call it on that thread.
class CallbackThread final : public Callbacks {
 public:
  explicit CallbackThread(LinkCore& core);  // the core must outlive the last Run
  ~CallbackThread() override;

  void Run(std::function<void()> callback) override;
  bool on_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  void HandOver();
  void Loop();

  LinkCore& core_;
  std::vector<std::function<void()>> collected_;  // in this turn; used on the link's thread only

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> handed_over_;  // guarded by mutex_
  bool stopping_ = false;                           // guarded by mutex_
  std::thread thread_;                              // last: it uses all the others
};

}  // namespace sluice
