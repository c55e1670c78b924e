#pragma once

#include <cstdint>

#include "sluice/link_profile.h"

#include "absl/status/statusor.h"
#include "absl/time/time.h"

// The lossless-scheduling model: pure functions of a LinkProfile that has passed Validate(). Symbols and equation
// numbers refer to Podlesny and Williamson's application-level scheduling paper; docs/internals/model.md derives
// the rest. Nothing overflows: PlanSlots refuses sizes beyond the two bounds below, and the other functions replace
// such a size by the nearest bound.
namespace sluice {

inline constexpr int64_t kMaxResponseBytes = int64_t{1} << 32;  // maximum size of one response, and so of one SRU
inline constexpr int64_t kMaxWorkers = int64_t{1} << 20;        // maximum number of workers of one data block

// The packets that carry `payload_bytes`, and the bytes that these take in the buffer and on the link, with frames.
int64_t Packets(const LinkProfile& profile, int64_t payload_bytes);
int64_t WireBytes(const LinkProfile& profile, int64_t payload_bytes);

// wnd_max: the maximum number of packets that one worker can have in the buffer while it responds with `sru_packets`
// packets. For persistent connections that is all of them; for fresh ones it is the slow-start bound (eq. 9 to 11),
// generalised to any initial window.
int64_t WndMaxPackets(const LinkProfile& profile, int64_t sru_packets);

// The buffer as a budget in bytes, and the share of it that a response takes: min(wire bytes, wnd_max full frames). If
// the buffer counts packets, both functions count every packet as a full frame, which gives the same sum.
int64_t BufferBudgetBytes(const LinkProfile& profile);
int64_t BufferCostBytes(const LinkProfile& profile, int64_t payload_bytes);

// The largest payload whose cost is at most `cost_bytes`; 0 if not even one byte fits.
int64_t LargestPayloadWithin(const LinkProfile& profile, int64_t cost_bytes);

// The paper's schedule for one data block: batches of n workers, one batch a slot.
struct SlotPlan {
  int64_t sru_packets = 0;      // S_SRU (5)
  int64_t wnd_max_packets = 0;  // (11)
  int64_t batch_workers = 0;    // n (14): workers that may respond at once
  int64_t batches = 0;          // k (21)
  absl::Duration sru_time;      // T (18)
  absl::Duration slot;          // T~ (19)
  absl::Duration block_time;    // t_r (22)
  double goodput_bps = 0;       // (1), payload bits per second
};

// Computes the paper's schedule. Returns FailedPrecondition if not even one worker fits the buffer (n = 0), with the
// bytes that are needed and the bytes that there are; InvalidArgument for sizes below 1 or above their bound.
absl::StatusOr<SlotPlan> PlanSlots(const LinkProfile& profile, int64_t sru_bytes, int64_t workers);

// As PlanSlots, but n is at least 1: a response larger than the buffer goes alone.
SlotPlan PlanSlotsAtLeastOne(const LinkProfile& profile, int64_t sru_bytes, int64_t workers);

// Goodput, in payload bits per second, of the closed loop that admits the next response when one has arrived. It is the
// payload's share of the wire, with the first round trip of the block; it is less if the buffer holds too few responses
// to cover the round trips.
double PredictClosedLoopGoodputBps(const LinkProfile& profile, int64_t sru_bytes, int64_t workers);

// Responses are granted in parts of at most a third of the budget.
inline constexpr int64_t kPartsOfBudget = 3;
// The share of the link that `grants` can use, with the buffer as its budget: at most 1. Granted bytes hold the budget
// for a round trip and the sending time of a part, so a path that holds more than the budget leaves the link idle.
double GrantedLinkShare(const LinkProfile& profile, int64_t sru_bytes);
// Goodput of `grants`, in payload bits per second: the closed loop in bytes instead of responses. The first grants
// leave with their requests, so they take no round trip of their own.
double PredictGrantsGoodputBps(const LinkProfile& profile, int64_t sru_bytes, int64_t workers);

// The least window of a tunnel. A request leaves only when it fits the budget, and takes it until the response has
// come.
inline constexpr int64_t kTunnelWindowPackets = 2;
// Goodput, in payload bits per second, of tunnels that ask again and again, each one worker, which thinks for
// `think_time`: a closed network of as many requests as windows fit the budget, by mean-value analysis (Reiser and
// Lavenberg, 1980). Sizes and counts are bounded as above, `think_time` below by 0.
double PredictTunnelGoodputBps(const LinkProfile& profile, int64_t response_bytes, int64_t workers,
                               absl::Duration think_time);

}  // namespace sluice
