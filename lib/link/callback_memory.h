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

// Bounds the responses of a link that the application has not merged: messages that wait for its callbacks, and
// messages that the schedule may grant. There is one for each link, used on the link's thread only. It reads no clock.
//
// Each fan-out has an Account, and each of its calls has a Claim. A call claims a message before it requests a grant
// from the schedule. After a claim, an account holds at most the number of bytes that remain free. If n accounts want
// more, each holds 1/(n+1) of the bound, and the next account finds the rest. A fan-out with a slow `merge` therefore
// stops itself and not the others. A message that does not fit goes alone, beyond the bound, once its account holds
// nothing; only one message of the link does so at a time. The claims of one account are served in order.
//
// A call claims a whole message. Rejected: claiming it part by part. Parts of many messages can fill the memory, and
// then no message can be merged.
//
// A claim ages while its worker may send, whether it sends or not. It does not age while its message waits for the
// link. Each received byte takes `byte_time` off its age. A claim older than `patience` no longer counts: its worker is
// slow or hangs, and must not stop the others. Its message may then arrive beyond the bound.
//
// A message of n bytes therefore holds its room for at most patience + n * byte_time of the time in which its worker
// may send. After it has arrived, it holds the room until it is merged. A worker cannot hold the room for longer. At
// most one message for each call arrives beyond the bound, and only if its worker is slower than one byte per
// byte_time. If such workers need m times as long for a message as it holds its room, their messages take at most m
// times that room.
//
// Rejected: aging only since the last byte. A worker that sends a packet now and then would hold its room for minutes.
// Rejected: counting the messages of slow workers separately, as the schedule counts their bytes. The schedule detects
// a slow worker only when others overtake it, and they cannot while its claims hold the room. Rejected: bounding the
// messages that arrive beyond the bound. At that second bound the others would wait for slow workers.
class CallbackMemory {
 public:
  class Account;
  class Claim;

  // `timers` and `metrics` must outlive it.
  CallbackMemory(TimerQueue& timers, LinkMetrics& metrics, std::function<TimePoint()> now);
  ~CallbackMemory();  // accounts must be gone
  CallbackMemory(const CallbackMemory&) = delete;
  CallbackMemory& operator=(const CallbackMemory&) = delete;

  static constexpr int64_t kMaxBytes = int64_t{1} << 40;
  // The minimum size that a message counts for, which covers its bookkeeping.
  static constexpr int64_t kMinMessageBytes = 128;
  // Eight budgets keep the link busy while messages wait. The minimum is also the default limit of a FanOut for one
  // message. Half of it holds dozens of messages of 1 MB, or the bytes that arrive in 0.25 s at 1 Gbit/s.
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
  // the bound, since each callback thread has at most one such message.
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
  void LookWhenOld();  // sets the timer for the next claim that may become old, if others wait
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
  Account* alone_ = nullptr;  // the account whose message goes alone, until it holds nothing
  Accounts waiting_;          // accounts with waiting claims
  AgingClaims aging_;         // claims that count and age, by old_at_
  TimerQueue::Id timer_;      // calls Look; set only while claims wait
};

// The bytes that one fan-out holds. The memory must outlive it.
class CallbackMemory::Account : public Hook {
 public:
  explicit Account(CallbackMemory& memory) : memory_(memory) {}
  ~Account() { Release(waiting_bytes_); }
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  void Hold(int64_t bytes);     // a message has arrived and waits for its callback, with or without a claim
  void Release(int64_t bytes);  // the message was merged or dropped

 private:
  friend class CallbackMemory;

  CallbackMemory& memory_;
  int64_t waiting_bytes_ = 0;
  int64_t counted_bytes_ = 0;  // waiting_bytes_ and the claims that count
  WaitingClaims waiting_;
};

// The message that may arrive for one call of a fan-out. A waiting claim holds nothing, so no two claims wait for each
// other.
class CallbackMemory::Claim : public Hook, public AgingHook {
 public:
  // A null account bounds nothing. After Take returns false, `on_room` is called once, when the bytes have been taken,
  // and not within a call of the claim. It may release the claim, and must not destroy it.
  Claim(std::shared_ptr<Account> account, std::function<void()> on_room)
      : account_(std::move(account)), on_room_(std::move(on_room)) {}
  ~Claim() { Release(); }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  // Takes `bytes` in total, and does nothing if the claim has that many already. Returns false if they must wait.
  bool Take(int64_t bytes);
  void Release();  // gives up the bytes taken, or stops waiting
  // The message begins to wait for the link (true), or stops waiting (false).
  void OnHeld(bool held);
  // `bytes` of the message have arrived.
  void OnProgress(size_t bytes) { came_bytes_ += bytes; }

 private:
  friend class CallbackMemory;

  void Enter();
  void Age();         // starts to age now
  bool Rejuvenate();  // by the bytes received; returns false if there are none

  const std::shared_ptr<Account> account_;  // may be null
  const std::function<void()> on_room_;
  int64_t wanted_bytes_ = 0;  // while it waits
  int64_t bytes_ = 0;         // taken
  bool counts_ = false;       // the account counts bytes_
  bool held_ = false;
  size_t came_bytes_ = 0;            // since the last look at its age
  TimePoint::duration patience_{0};  // the rest of it, while the claim does not age
  TimePoint old_at_;                 // while it ages
};

inline TimePoint CallbackMemory::OldAt::operator()(const Claim& claim) const {
  return claim.old_at_;
}

}  // namespace sluice
