#include "lib/model/slow_start.h"

#include <algorithm>

#include "sluice/plan.h"

namespace sluice {

int64_t WndMaxPackets(const LinkProfile& profile, int64_t sru_packets) {
  const int64_t packets = std::clamp<int64_t>(sru_packets, 0, kMaxResponseBytes);
  if (!profile.fresh_connections || packets <= profile.initial_window_packets) return packets;

  int64_t window = profile.initial_window_packets;  // wnd_A, the last window that the SRU fills
  int64_t rest = packets - window;                  // wnd_B, the packets that are sent after wnd_A
  while (rest >= 2 * window) {
    window *= 2;
    rest -= window;
  }
  // The paper's theorem. The first acknowledgement removes one packet of wnd_A. From then on, at most all of wnd_B can
  // arrive, and at most wnd_A packets, since each acknowledgement of wnd_A adds one. docs/internals/model.md proves it
  // for every IW.
  return rest == 0 ? window : window + std::min(rest, window) - 1;
}

int64_t SendingRounds(const LinkProfile& profile, int64_t sru_packets) {
  if (!profile.fresh_connections) return 1;
  int64_t rounds = 0;
  for (int64_t sent = 0, window = profile.initial_window_packets; sent < sru_packets; window *= 2) {
    sent += window;
    ++rounds;
  }
  return rounds;
}

}  // namespace sluice
