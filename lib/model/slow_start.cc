#include "lib/model/slow_start.h"

#include <algorithm>

#include "sluice/plan.h"

namespace sluice {

int64_t WndMaxPackets(const LinkProfile& profile, int64_t sru_packets) {
  const int64_t packets = std::clamp<int64_t>(sru_packets, 0, kMaxResponseBytes);
  if (profile.connections == Connections::kPersistent || packets <= profile.initial_window_packets) return packets;

  int64_t window = profile.initial_window_packets;  // wnd_A, the last window that the SRU fills
  int64_t rest = packets - window;                  // wnd_B, what is sent after it
  while (rest >= 2 * window) {
    window *= 2;
    rest -= window;
  }
  // The paper's theorem: the first acknowledgement means one packet of wnd_A less, and from then on no more of wnd_B
  // can come than there is, nor than wnd_A, whose every acknowledgement adds one. docs/internals/model.md proves it for
  // every IW.
  return rest == 0 ? window : window + std::min(rest, window) - 1;
}

int64_t SendingRounds(const LinkProfile& profile, int64_t sru_packets) {
  if (profile.connections == Connections::kPersistent) return 1;
  int64_t rounds = 0;
  for (int64_t sent = 0, window = profile.initial_window_packets; sent < sru_packets; window *= 2) {
    sent += window;
    ++rounds;
  }
  return rounds;
}

}  // namespace sluice
