#include "lib/scheduling/tunnel_turns.h"

#include <algorithm>

namespace sluice {
namespace {

using std::chrono::nanoseconds;

// A worker may take this many times as long as it took at most in its last responses.
constexpr int kPatience = 3;
// A worker that has just sent all it had sends more soon, or not at all: no packet is on its way.
constexpr int kShortSilence = 8;
// A time of thinking that is not seen again is forgotten by a tenth for each response.
constexpr double kForget = 0.9;

}  // namespace

// A request that got no response in its turn may be an upload, or have none. Its other bytes pass without a turn.
TunnelTurns::Step TunnelTurns::OnRequest(TimePoint now, bool wants_response) {
  if (!passes_requests()) return Step::kNothing;
  if (!wants_response && believes_) {
    ignored_ = true;
    return Step::kNothing;
  }
  if (phase_ == Phase::kQuiet) return given_up_ ? Step::kNothing : Ask(/*for_request=*/true);
  if (answered_) BeginExchange(now);
  return Step::kNothing;
}

TunnelTurns::Step TunnelTurns::OnResponse(TimePoint now, const Piece& piece, int64_t part_bytes) {
  response_bytes_ += piece.bytes;
  ends_ = piece.ends;
  const bool awaited = !answered_;
  if (piece.is_response && !answered_) OnAnswered(now);
  if (phase_ == Phase::kQuiet) {
    if (piece.bytes <= kSmallPieceBytes) return Step::kNothing;
    OnSurprise(now, awaited);
    return Ask(/*for_request=*/false);
  }
  if (phase_ != Phase::kTurn) return Step::kNothing;
  if (answered_) last_ = now;
  turn_bytes_ += piece.bytes;
  return turn_bytes_ < part_bytes ? Step::kNothing : Ask(/*for_request=*/false);
}

void TunnelTurns::OnAnswered(TimePoint now) {
  answered_ = true;
  given_up_ = false;
  const auto slowest = std::chrono::duration_cast<nanoseconds>(thinking_ * kForget);
  last_thinking_ = now - requested_;
  thinking_ = std::min<nanoseconds>(std::max(last_thinking_, slowest), kMostThinking);
}

// The response had paused, or the worker responds to bytes that seemed to be no request.
void TunnelTurns::OnSurprise(TimePoint now, bool awaited) {
  ++surprises_;
  if (awaited) return;
  if (ignored_) believes_ = false;
  if (now - last_ < kMostPause) pause_ = std::min<nanoseconds>(2 * (now - last_), kMostPause);
}

TunnelTurns::Step TunnelTurns::OnGranted(TimePoint now) {
  if (stuck_) {
    phase_ = Phase::kHeld;
    return Step::kEnd;
  }
  phase_ = Phase::kTurn;
  turn_bytes_ = 0;
  last_ = now;
  if (for_request_) BeginExchange(now);
  return Step::kNothing;
}

TunnelTurns::Step TunnelTurns::OnClientStuck(bool stuck) {
  stuck_ = stuck;
  if (stuck && (phase_ == Phase::kTurn || phase_ == Phase::kQuiet)) {
    const bool turn = phase_ == Phase::kTurn;
    phase_ = Phase::kHeld;
    return turn ? Step::kAbandon : Step::kNothing;
  }
  return !stuck && phase_ == Phase::kHeld ? Ask(/*for_request=*/false) : Step::kNothing;
}

TunnelTurns::Step TunnelTurns::OnTimer(TimePoint now, nanoseconds silence) {
  if (now < Due(silence)) return Step::kNothing;
  given_up_ = !answered_;
  pause_ /= 2;  // as long as no surprise follows
  phase_ = Phase::kQuiet;
  response_bytes_ = 0;
  return Step::kEnd;
}

TimePoint TunnelTurns::Due(nanoseconds silence) const {
  return phase_ == Phase::kTurn ? last_ + Patience(silence) : TimePoint::max();
}

nanoseconds TunnelTurns::Patience(nanoseconds silence) const {
  if (ends_ && answered_) silence /= kShortSilence;
  silence = std::max(silence, pause_);
  return answered_ ? silence : std::min<nanoseconds>(kPatience * thinking_ + silence, kMostThinking);
}

TunnelTurns::Step TunnelTurns::Ask(bool for_request) {
  phase_ = Phase::kWaiting;
  for_request_ = for_request;
  return Step::kAsk;
}

void TunnelTurns::BeginExchange(TimePoint now) {
  for_request_ = false;
  answered_ = false;
  ends_ = false;
  ignored_ = false;
  response_bytes_ = 0;
  requested_ = now;
  last_ = now;
}

}  // namespace sluice
