#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "lib/sharing/sharing_client.h"
#include "lib/sharing/sharing_mode.h"

namespace sluice {

// Decides which clients of a link are served. If the next calls of all clients fit the budget, all are served.
// Otherwise clients take turns of about two budgets of received bytes, or of one block in fifo. Received bytes are
// counted against weights: the client that is furthest behind is next. There is one for each LinkDivider, whose clients
// it works on. Not thread-safe. It reads no clock.
class LinkTurns {
 public:
  using Clients = std::vector<SharingClient*>;

  LinkTurns(const Clients& clients, SharingMode mode, int64_t budget_bytes, std::chrono::nanoseconds drain_time);

  void SetBudget(int64_t budget_bytes) { budget_bytes_ = budget_bytes; }

  void OnReceived(TimePoint now, SharingClient& by, int64_t bytes);
  // Credits received bytes, by weight, to the clients that contend for the link. Ends the turns that have stalled, and
  // begins turns. Returns the clients to serve, in order, with their floors.
  std::vector<SharingClient*> Serve(TimePoint now);
  // When a turn ends unless bytes arrive; TimePoint::max() if no client waits. It does not change until Serve, except
  // that bytes arrive.
  TimePoint NextStall() const;
  // Returns by how much a client counts for more than its weight: up to 2 if it is behind, less than 1 if it is ahead.
  double Boost(const SharingClient& client) const;

 private:
  void Credit();
  bool Contends(const SharingClient& client) const;
  bool HasTurn(const SharingClient& client) const;
  bool MayStall(const SharingClient& client) const;
  int64_t TurnBytes() const;
  TimePoint StallsAt(TimePoint now) const;
  void EndStalled(TimePoint now);
  std::vector<SharingClient*> HungryInOrder();

  const Clients& clients_;
  const bool fifo_;
  int64_t budget_bytes_;
  const std::chrono::nanoseconds drain_time_;
  bool any_waits_ = false;       // a client waited for its turn at the last Serve
  double uncredited_bytes_ = 0;  // of all clients
};

}  // namespace sluice
