#include "lib/scheduling/tunnel_turns.h"

#include <algorithm>

namespace sluice {
namespace {

using std::chrono::nanoseconds;

// A worker may take this many times as long as it took at most in its last responses.
constexpr int kPatience = 3;
// A worker that has just sent all it had sends more soon, or not at all: no packet is on its way.
constexpr int kShortSilence = 8;
// The first response may be one of a TLS handshake.
constexpr nanoseconds kFirstThinking = std::chrono::milliseconds(20);
// A time of thinking that is not seen again is forgotten by a tenth for each response.
constexpr double kForget = 0.9;

// 0: not a small piece.
size_t SizeOf(int64_t bytes) {
  return bytes <= TunnelTurns::kSmallPieceBytes ? static_cast<size_t>(bytes) : 0;
}

}  // namespace

// A large request that got no response in its turn may be an upload, or have none. Its other bytes pass without a turn.
TunnelTurns::Step TunnelTurns::OnRequest(TimePoint now, int64_t bytes, bool wants_response) {
  if (!passes_requests()) {
    request_size_ = 0;  // it has several pieces
    return Step::kNothing;
  }
  const size_t size = SizeOf(bytes);
  const bool had_none = unanswered_sizes_[size] && !answered_sizes_[size];
  if ((!wants_response && believes_) || had_none) {
    ignored_ = true;
    ignored_size_ = had_none ? size : 0;
    return Step::kNothing;
  }
  if (phase_ == Phase::kQuiet) {
    if (given_up_ && size == 0) return Step::kNothing;
    request_size_ = size;
    return Ask(/*for_request=*/true);
  }
  request_size_ = answered_ && ends_ ? size : 0;  // otherwise the next response may not be its own
  if (answered_) BeginExchange(now);
  return Step::kNothing;
}

TunnelTurns::Step TunnelTurns::OnResponse(TimePoint now, const Piece& piece, int64_t part_bytes) {
  response_bytes_ += piece.bytes;
  const bool awaited = !answered_;
  const bool announces = !answered_ && announcing_sizes_[SizeOf(piece.bytes)];
  if (announces) announced_size_ = SizeOf(piece.bytes);
  const bool is_response = piece.is_response && !announces;
  ends_ = piece.ends && is_response;
  if (is_response && !answered_) OnAnswered(now);
  if (phase_ == Phase::kQuiet) {
    if (piece.bytes <= kSmallPieceBytes) return Step::kNothing;
    OnSurprise(now, awaited);
    return Ask(/*for_request=*/false);
  }
  if (phase_ != Phase::kTurn) return Step::kNothing;
  whole_size_ = ends_ && response_bytes_ == piece.bytes ? SizeOf(piece.bytes) : 0;
  if (answered_) last_ = now;
  turn_bytes_ += piece.bytes;
  return turn_bytes_ < part_bytes ? Step::kNothing : Ask(/*for_request=*/false);
}

void TunnelTurns::OnAnswered(TimePoint now) {
  answered_ = true;
  given_up_ = false;
  answered_sizes_.set(request_size_);
  const nanoseconds slowest =
      last_thinking_ == nanoseconds(0) ? kFirstThinking : std::chrono::duration_cast<nanoseconds>(thinking_ * kForget);
  last_thinking_ = now - requested_;
  thinking_ = std::min<nanoseconds>(std::max(last_thinking_, slowest), kMostThinking);
}

// The response had paused, or the worker responds to bytes that seemed to be no request.
void TunnelTurns::OnSurprise(TimePoint now, bool awaited) {
  ++surprises_;
  if (awaited) return;
  if (ignored_ && ignored_size_ == 0) believes_ = false;
  if (ignored_) answered_sizes_.set(ignored_size_);
  if (!ignored_ && whole_size_ > 0) announcing_sizes_.set(whole_size_);
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
  // A small piece that seemed to come before the response was all of it.
  if (!answered_ && announced_size_ > 0) {
    announcing_sizes_.reset(announced_size_);
    answered_ = true;
  }
  given_up_ = !answered_;
  if (given_up_) unanswered_sizes_.set(request_size_);
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
  whole_size_ = 0;
  announced_size_ = 0;
  response_bytes_ = 0;
  requested_ = now;
  last_ = now;
}

}  // namespace sluice
