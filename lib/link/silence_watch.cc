#include "lib/link/silence_watch.h"

#include <utility>

namespace sluice {

void SilenceWatch::Begin(const Received& received) {
  bytes_ = received.bytes;
  silent_looks_ = 0;
  waits_for_answer_ = false;
}

SilenceWatch::Verdict SilenceWatch::Look(TimePoint now, const Received& received) {
  if (std::exchange(bytes_, received.bytes) != received.bytes) {
    silent_looks_ = 0;
    waits_for_answer_ = false;
    return Verdict::kAlive;
  }
  ++silent_looks_;
  if (waits_for_answer_) return ++unanswered_looks_ >= kLooksForAnswer ? Verdict::kFrozen : Verdict::kAlive;
  if (silent_looks_ < kLooksBeforePing || !MayPing(now, received.stream_frames)) return Verdict::kAlive;
  waits_for_answer_ = true;
  unanswered_looks_ = 0;
  last_ping_ = {.at = now, .stream_frames = received.stream_frames};
  return Verdict::kPing;
}

bool SilenceWatch::MayPing(TimePoint now, uint64_t stream_frames) const {
  return !last_ping_.has_value() || stream_frames > last_ping_->stream_frames || now - last_ping_->at >= kPingEvery;
}

}  // namespace sluice
