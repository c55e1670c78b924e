// Whose response counts: at most one attempt of each ask at a time, and no more asks than the quorum.

#include <utility>

#include "absl/algorithm/container.h"
#include "lib/fan_out/fan_out_logic.h"

namespace sluice {

using Kind = FanOutLogic::Action::Kind;

// Accepts the messages of the oldest attempt that has messages to accept. If the quorum is taken, the ask waits.
void FanOutLogic::LetIn(size_t ask, Actions& actions) {
  AskState& state = asks_[ask];
  if (decided_ || state.outcome != AskOutcome::kPending || state.accepting.has_value()) return;
  const auto first = absl::c_find_if(state.live, [&](size_t attempt) {
    return Whole(attempt) || (options_.server_streaming && attempts_[attempt].kept > 0);
  });
  if (first == state.live.end()) return;
  if (!QuorumIsTaken()) return Accept(*first, actions);
  if (!std::exchange(state.waits_for_quorum, true)) waiting_.push_back(ask);
}

void FanOutLogic::LetInWaiting(Actions& actions) {
  while (!decided_ && next_waiting_ < waiting_.size() && !QuorumIsTaken()) {
    const size_t ask = waiting_[next_waiting_++];
    asks_[ask].waits_for_quorum = false;
    LetIn(ask, actions);
    DecideIfSettled(actions);
  }
}

bool FanOutLogic::AwaitsVerdicts() const {
  const size_t in = result_.answered + asks_accepting_;
  return in + result_.failures.size() >= asks_.size() || in >= options_.success_quorum.value_or(asks_.size());
}

// Whether the quorum is reached by responses that were accepted or that wait for their verdict.
bool FanOutLogic::QuorumIsTaken() const {
  return !options_.server_streaming && options_.success_quorum.has_value() &&
         result_.answered + asks_accepting_ >= *options_.success_quorum;
}

void FanOutLogic::Accept(size_t attempt, Actions& actions) {
  AttemptState& state = attempts_[attempt];
  AskState& ask = AskOf(attempt);
  if (!ask.accepting.has_value()) ++asks_accepting_;
  ask.accepting = attempt;
  if (state.kept == 0) {  // an empty stream
    Claim(attempt, actions);
    Answer(attempt, actions);
    return;
  }
  state.unsettled += state.kept;
  unsettled_ += state.kept;
  actions.push_back({Kind::kAccept, attempt, std::exchange(state.kept, 0)});
}

void FanOutLogic::Claim(size_t attempt, Actions& actions) {
  AskState& ask = AskOf(attempt);
  ask.claimed = true;
  for (size_t i = 0; i < ask.live.size();) {
    if (ask.live[i] == attempt) {
      ++i;
    } else {
      Conclude(ask.live[i], AttemptOutcome::kNotNeeded, actions);
    }
  }
}

void FanOutLogic::Answer(size_t attempt, Actions& actions) {
  Conclude(attempt, AttemptOutcome::kAnswered, actions);
  CloseAsk(attempts_[attempt].made.ask, AskOutcome::kAnswered);
  ++result_.answered;
  if (attempts_[attempt].made.hedge) ++result_.hedges_won;
}

// After an attempt has failed, and its last message has its verdict, accepts a rival or a successor instead.
void FanOutLogic::Release(size_t attempt, Actions& actions) {
  AskState& ask = AskOf(attempt);
  if (attempts_[attempt].live || attempts_[attempt].unsettled > 0 || ask.accepting != attempt) return;
  ask.accepting.reset();
  --asks_accepting_;
  LetIn(attempts_[attempt].made.ask, actions);
}

}  // namespace sluice
