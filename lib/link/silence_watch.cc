#include "lib/link/silence_watch.h"

namespace sluice {

void SilenceWatch::Begin(const Received& received) {
  bytes_ = received.bytes;
  silent_looks_ = 0;
  unanswered_looks_.reset();
}

SilenceWatch::Verdict SilenceWatch::Look(TimePoint now, const Received& received) {
  if (bytes_ != received.bytes) {
    Begin(received);
    return Verdict::kAlive;
  }
  ++silent_looks_;
  if (unanswered_looks_.has_value()) {
    return ++*unanswered_looks_ >= kLooksForAnswer ? Verdict::kFrozen : Verdict::kAlive;
  }
  if (silent_looks_ < kLooksBeforePing || !MayPing(now, received.stream_frames)) return Verdict::kAlive;
  unanswered_looks_ = 0;
  last_ping_ = {.at = now, .stream_frames = received.stream_frames};
  return Verdict::kPing;
}

bool SilenceWatch::MayPing(TimePoint now, uint64_t stream_frames) const {
  return !last_ping_.has_value() || stream_frames > last_ping_->stream_frames || now - last_ping_->at >= kPingEvery;
}

}  // namespace sluice
