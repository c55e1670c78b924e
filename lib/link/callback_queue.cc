#include "lib/link/callback_queue.h"

#include <algorithm>
#include <utility>

namespace sluice {

void CallbackQueue::Push(Owner owner, std::function<void()> callback) {
  const auto [known, is_new] = turns_by_owner_.try_emplace(owner);
  if (is_new) known->second = turns_.insert(turns_.end(), Turn{.owner = owner, .callbacks = {}});
  known->second->callbacks.push_back(std::move(callback));
  ++waiting_;
}

std::function<void()> CallbackQueue::Pop() {
  while (true) {
    Turn& turn = turns_.front();
    if (turn.left <= Duration::zero()) {
      turn.left += kTurn;
      turns_.splice(turns_.end(), turns_, turns_.begin());
    } else if (turn.callbacks.empty()) {
      turns_by_owner_.erase(turn.owner);
      turns_.pop_front();
    } else {
      std::function<void()> callback = std::move(turn.callbacks.front());
      turn.callbacks.pop_front();
      --waiting_;
      return callback;
    }
  }
}

// With nobody else to wait for, debts are forgotten.
void CallbackQueue::Took(Duration time) {
  turns_.front().left = std::max(turns_.front().left - time, -kMostDebt);
  if (!empty()) return;
  turns_.clear();
  turns_by_owner_.clear();
}

}  // namespace sluice
