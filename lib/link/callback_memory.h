#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>

#include "lib/link/link_metrics.h"
#include "lib/net/timer_queue.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {

// Bounds the responses of a link that the application has not merged: the messages that wait for its callbacks, and the
// messages that the schedule may let come. There is one for each link, used on the link's thread only. It reads no
// clock.
//
// Each fan-out has an Account, and each of its calls has a Claim. A call claims a message before it asks the schedule
// for it. An account holds at most as much as is free after it. If n accounts want more, each holds 1/(n+1) of the
// bound, and the next account finds the rest. A fan-out whose `merge` is slow therefore stops itself and not the
// others. If a message does not fit, it goes alone once its account holds nothing: one message of the link at a time,
// beyond the bound. The claims of one account are served in their order.
//
// A call claims a whole message. Rejected: to claim it part by part, since parts of many messages can fill the memory,
// and no message can be merged then.
//
// A claim ages while its worker may send, whatever it sends, and does not age while its message waits for the link.
// Each byte that comes takes `byte_time` off its age. A claim that is older than `patience` does not count any more:
// its worker is slow or hangs, and must not stop the others. Its message may then come beyond the bound.
//
// So a message of n bytes holds its room for at most patience + n * byte_time of the time in which its worker may send,
// and until it is merged once it is here. Nothing that a worker does holds the room for longer. The messages that come
// beyond the bound are at most one for each call whose worker is slower than a byte in each byte_time. If such workers
// need m times as long for a message as it holds its room, their messages take at most m times that room.
//
// Rejected: to age only since the last byte; a worker that sends a packet now and then holds its room for minutes.
// Rejected: to count the messages of slow workers apart, as the schedule counts their bytes; a worker proves slow to
// the schedule only if others overtake it, and they cannot while its claims hold the room. Rejected: to bound the
// messages that come beyond the bound; the others wait for slow workers once these are at that second bound.
class CallbackMemory {
 public:
  class Account;
  class Claim;

  // Both must outlive it.
  CallbackMemory(TimerQueue& timers, LinkMetrics& metrics, std::function<TimePoint()> now);
  ~CallbackMemory();  // accounts must be gone
  CallbackMemory(const CallbackMemory&) = delete;
  CallbackMemory& operator=(const CallbackMemory&) = delete;

  static constexpr int64_t kMaxBytes = int64_t{1} << 40;
  // A message takes at least so many bytes, with what is kept beside it.
  static constexpr int64_t kMinMessageBytes = 128;
  // Many budgets, so that the link stays busy while messages wait; and the largest message that a FanOut takes by
  // default, so that half of it holds dozens of messages of 1 MB, or what 1 Gbit/s brings in 0.25 s.
  static constexpr int64_t DefaultBytes(int64_t budget_bytes) {
    constexpr int64_t kBudgets = 8;
    constexpr int64_t kMinBytes = 64 << 20;
    return std::max(std::min(budget_bytes, kMaxBytes / kBudgets) * kBudgets, kMinBytes);
  }

  using ByteTime = std::chrono::duration<double, std::nano>;
  void SetBound(int64_t bytes);
  void SetPatience(TimePoint::duration patience, ByteTime byte_time);
  // Bytes of messages that wait for callbacks, and of messages that were decompressed for their callback.
  int64_t waiting_bytes() const { return waiting_bytes_ + decompressed_bytes_.load(std::memory_order_relaxed); }
  // Bytes that count against the bound.
  int64_t counted_bytes() const { return counted_bytes_; }
  // Thread-safe. Counts the bytes of a message that is decompressed while its callback runs. They do not count against
  // the bound, since there is one such message for each callback thread.
  void CountDecompressed(int64_t more_bytes) { decompressed_bytes_.fetch_add(more_bytes, std::memory_order_relaxed); }

 private:
  using Hook = boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
  struct AgingTag;
  using AgingHook = boost::intrusive::set_base_hook<boost::intrusive::tag<AgingTag>,
                                                    boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
  struct OldAt {
    using type = TimePoint;
    TimePoint operator()(const Claim& claim) const;
  };
  using Accounts =
      boost::intrusive::list<Account, boost::intrusive::base_hook<Hook>, boost::intrusive::constant_time_size<false>>;
  using WaitingClaims =
      boost::intrusive::list<Claim, boost::intrusive::base_hook<Hook>, boost::intrusive::constant_time_size<false>>;
  using AgingClaims =
      boost::intrusive::multiset<Claim, boost::intrusive::base_hook<AgingHook>, boost::intrusive::key_of_value<OldAt>,
                                 boost::intrusive::constant_time_size<false>>;

  bool MayTake(Account& account, int64_t bytes, bool may_go_alone);
  void Count(Account& account, int64_t bytes);
  void LookLater(TimePoint when);
  void LookWhenOld();  // when the next claim may be, if others wait
  void Look();
  void EndPatience();

  TimerQueue& timers_;
  LinkMetrics& metrics_;
  const std::function<TimePoint()> now_;
  int64_t bound_bytes_ = 0;
  TimePoint::duration patience_{0};
  ByteTime byte_time_{0};
  int64_t waiting_bytes_ = 0;
  std::atomic<int64_t> decompressed_bytes_ = 0;
  int64_t counted_bytes_ = 0;
  Account* alone_ = nullptr;  // the one whose message goes alone, until it holds nothing
  Accounts waiting_;          // that have claims that wait
  AgingClaims aging_;         // that count and age, by old_at_
  TimerQueue::Id timer_;      // calls Look; set only while claims wait
};

// The bytes that one fan-out holds. The memory must outlive it.
class CallbackMemory::Account : public Hook {
 public:
  explicit Account(CallbackMemory& memory) : memory_(memory) {}
  ~Account() { Release(waiting_bytes_); }
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  void Hold(int64_t bytes);     // a message has arrived and waits for its callback, claimed before or not
  void Release(int64_t bytes);  // the message is merged or dropped

 private:
  friend class CallbackMemory;

  CallbackMemory& memory_;
  int64_t waiting_bytes_ = 0;
  int64_t counted_bytes_ = 0;  // waiting_bytes_, and the claims that count
  WaitingClaims waiting_;
};

// The message that may come for one call of a fan-out. A claim that waits holds nothing, so no two claims wait for each
// other.
class CallbackMemory::Claim : public Hook, public AgingHook {
 public:
  // A null account bounds nothing. After a Take that returned false, `on_room` is called once, when the bytes are
  // taken, and not within a call of the claim. It may release the claim, and must not destroy it.
  Claim(std::shared_ptr<Account> account, std::function<void()> on_room)
      : account_(std::move(account)), on_room_(std::move(on_room)) {}
  ~Claim() { Release(); }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  // Takes `bytes` in all, and does nothing if so many are taken. Returns false if they must wait.
  bool Take(int64_t bytes);
  void Release();  // gives up what is taken, or waits
  // The message waits for the link, or it does no longer.
  void OnHeld(bool held);
  // `bytes` of the message have come.
  void OnProgress(size_t bytes) { came_bytes_ += bytes; }

 private:
  friend class CallbackMemory;

  void Enter();
  void Age();         // from now on
  bool Rejuvenate();  // by the bytes that came; returns false if none did

  const std::shared_ptr<Account> account_;  // may be null
  const std::function<void()> on_room_;
  int64_t wanted_bytes_ = 0;  // while it waits
  int64_t bytes_ = 0;         // taken
  bool counts_ = false;       // the account counts bytes_
  bool held_ = false;
  size_t came_bytes_ = 0;            // since its age was last looked at
  TimePoint::duration patience_{0};  // left, while it does not age
  TimePoint old_at_;                 // while it ages
};

inline TimePoint CallbackMemory::OldAt::operator()(const Claim& claim) const {
  return claim.old_at_;
}

}  // namespace sluice
