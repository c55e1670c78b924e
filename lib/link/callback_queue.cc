#include "lib/link/callback_queue.h"

#include <algorithm>
#include <utility>

namespace sluice {

void CallbackQueue::Push(Callback callback) {
  const auto [known, is_new] = turns_by_owner_.try_emplace(callback.owner);
  if (is_new) known->second = turns_.insert(turns_.end(), Turn{.owner = callback.owner, .callbacks = {}});
  Turn& turn = *known->second;
  turn.callbacks.push_back(std::move(callback.run));
  if (!turn.runs) ++ready_;
}

CallbackQueue::Callback CallbackQueue::Pop() {
  while (true) {
    Turn& turn = turns_.front();
    if (turn.left <= Duration::zero()) {
      turn.left += kTurn;
      turns_.splice(turns_.end(), turns_, turns_.begin());
    } else if (turn.callbacks.empty()) {
      turns_by_owner_.erase(turn.owner);
      turns_.pop_front();
    } else {
      turn.runs = true;
      ready_ -= turn.callbacks.size();
      running_.splice(running_.end(), turns_, turns_.begin());
      Callback callback{.owner = turn.owner, .run = std::move(turn.callbacks.front())};
      turn.callbacks.pop_front();
      return callback;
    }
  }
}

// Drops all debts if no other owner waits.
void CallbackQueue::Took(Owner owner, Duration time) {
  const Turns::iterator turn = turns_by_owner_.at(owner);
  turn->left = std::max(turn->left - time, -kMaxDebt);
  turn->runs = false;
  ready_ += turn->callbacks.size();
  turns_.splice(turns_.begin(), running_, turn);
  if (!empty() || !running_.empty()) return;
  turns_.clear();
  turns_by_owner_.clear();
}

}  // namespace sluice
