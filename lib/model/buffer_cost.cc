#include <algorithm>

#include "sluice/plan.h"

namespace sluice {
namespace {

int64_t InBounds(int64_t payload_bytes) {
  return std::clamp<int64_t>(payload_bytes, 0, kMaxResponseBytes);
}

}  // namespace

int64_t Packets(const LinkProfile& profile, int64_t payload_bytes) {
  return (InBounds(payload_bytes) + profile.packet_payload_bytes - 1) / profile.packet_payload_bytes;
}

int64_t WireBytes(const LinkProfile& profile, int64_t payload_bytes) {
  const int64_t overhead = profile.frame_bytes - profile.packet_payload_bytes;
  return InBounds(payload_bytes) + Packets(profile, payload_bytes) * overhead;
}

int64_t BufferBudgetBytes(const LinkProfile& profile) {
  return profile.buffer_packets > 0 ? profile.buffer_packets * profile.frame_bytes : profile.buffer_bytes;
}

int64_t BufferCostBytes(const LinkProfile& profile, int64_t payload_bytes) {
  const int64_t frames = WndMaxPackets(profile, Packets(profile, payload_bytes)) * profile.frame_bytes;
  return profile.buffer_packets > 0 ? frames : std::min(frames, WireBytes(profile, payload_bytes));
}

int64_t LargestPayloadWithin(const LinkProfile& profile, int64_t cost_bytes) {
  // Bisect: the cost never falls as the payload grows, but it is flat in places, so it has no inverse.
  int64_t fits = 0;
  int64_t too_large = kMaxResponseBytes + 1;
  while (too_large - fits > 1) {
    const int64_t middle = fits + (too_large - fits) / 2;
    (BufferCostBytes(profile, middle) <= cost_bytes ? fits : too_large) = middle;
  }
  return fits;
}

}  // namespace sluice
