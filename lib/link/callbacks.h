#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "lib/link/callback_queue.h"
#include "lib/link/link_loop.h"
#include "lib/net/timer_queue.h"

namespace sluice {

// Runs the callbacks of the application. There is one for each link.
class Callbacks {
 public:
  enum class When {
    kThisTurn,  // the application waits for this callback
    kSoon,      // within CallbackThreads::kCollectTime, together with others
  };

  using Owner = CallbackQueue::Owner;

  virtual ~Callbacks() = default;
  // Runs callbacks one after the other. Callbacks of one owner run in the order of these calls. Call it on the link's
  // thread only.
  virtual void Run(Owner owner, std::function<void()> callback, When when = When::kThisTurn) = 0;
  // Returns whether the caller runs on a thread that is for callbacks alone.
  virtual bool IsThisThread() const { return false; }
};

// Prints the message and ends the process: for a wrong use of the library that no status can report, since it would
// hang.
[[noreturn]] void AbortWith(const absl::Status& why);

// Runs callbacks on the link's thread, at once: there is no hop, but a slow callback delays the link.
class InlineCallbacks final : public Callbacks {
 public:
  void Run(Owner /*owner*/, std::function<void()> callback, When /*when*/) override { callback(); }
};

// Runs callbacks on separate threads, in the order of CallbackQueue. The link's thread hands over all callbacks of a
// turn at once. Waking a thread for each response would cost as much as the rest of a call. Callbacks that no fan-out
// waits for are therefore collected over several turns. The destructor runs the remaining callbacks; do not call it on
// one of the threads.
class CallbackThreads final : public Callbacks {
 public:
  static constexpr std::chrono::microseconds kCollectTime{500};
  static constexpr size_t kCollectAtMost = 16;  // callbacks

  explicit CallbackThreads(LinkLoop& loop, int threads = 1);  // the loop must outlive the last Run
  ~CallbackThreads() override;

  void Run(Owner owner, std::function<void()> callback, When when) override;
  bool IsThisThread() const override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  void HandOver();
  void Loop();
  bool Await(Lock& lock);

  LinkLoop& loop_;
  // Used on the link's thread only.
  std::vector<CallbackQueue::Callback> collected_;
  bool ends_turn_ = false;  // HandOver runs at the end of this turn
  TimerQueue::Id timer_;    // runs HandOver

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<CallbackQueue::Callback> handed_over_;  // guarded by mutex_
  CallbackQueue queue_;                               // guarded by mutex_
  bool stopping_ = false;                             // guarded by mutex_
  std::vector<std::thread> threads_;                  // last, since they use all other members
};

}  // namespace sluice
