#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "lib/link/callback_queue.h"
#include "lib/link/link_core.h"
#include "lib/link/timer_queue.h"

namespace sluice {

// Runs the callbacks of the application. There is one for each link.
class Callbacks {
 public:
  enum class When {
    kThisTurn,  // the application waits for it
    kSoon,      // within CallbackThread::kCollectTime, together with others
  };

  using Owner = CallbackQueue::Owner;

  virtual ~Callbacks() = default;
  // Runs callbacks one after the other, those of one owner in the order of these calls. Called on the link's thread
  // only.
  virtual void Run(Owner owner, std::function<void()> callback, When when = When::kThisTurn) = 0;
};

// Runs callbacks on the link's thread, at once: there is no hop, but a slow callback delays the link.
class InlineCallbacks final : public Callbacks {
 public:
  void Run(Owner /*owner*/, std::function<void()> callback, When /*when*/) override { callback(); }
};

// Runs callbacks on a thread of their own, in the order of CallbackQueue. It gets all callbacks of a turn of the link's
// thread in one go. Where responses come one by one, to wake the thread for each would cost as much as all the rest of
// a call, so it collects what nobody waits for over several turns. The destructor runs those that are left; do not call
// it on that thread.
class CallbackThread final : public Callbacks {
 public:
  static constexpr std::chrono::microseconds kCollectTime{500};
  static constexpr size_t kCollectAtMost = 16;  // callbacks

  explicit CallbackThread(LinkCore& core);  // the core must outlive the last Run
  ~CallbackThread() override;

  void Run(Owner owner, std::function<void()> callback, When when) override;
  bool on_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  struct Callback {
    Owner owner = nullptr;
    std::function<void()> run;
  };

  void HandOver();
  void Loop();
  bool Await(std::vector<Callback>& callbacks);

  LinkCore& core_;
  // Used on the link's thread only.
  std::vector<Callback> collected_;
  bool ends_turn_ = false;  // HandOver runs at the end of this turn
  TimerQueue::Id timer_;    // HandOver runs at this time

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Callback> handed_over_;  // guarded by mutex_
  bool stopping_ = false;              // guarded by mutex_
  CallbackQueue queue_;                // used on the thread of the callbacks
  std::thread thread_;                 // last, since it uses all the others
};

}  // namespace sluice
