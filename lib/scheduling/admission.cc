#include "lib/scheduling/admission.h"

#include <algorithm>

#include "sluice/plan.h"

#include "lib/scheduling/saturating_add.h"

namespace sluice {

Admission::Admission(const ScheduleOptions& options, LiveCalls& calls)
    : options_(options),
      blocks_(calls.blocks()),
      budget_(calls.budget()),
      outstanding_(calls.outstanding()),
      laps_(calls.laps()),
      workers_(calls.workers()),
      queue_(calls.queue()),
      order_(calls.order()),
      window_(calls.window()),
      sent_(calls.sent()) {}

// A paced grant is no more than the least congestion window of a worker (RFC 6928): the rest would come a round trip
// later, and meet the bytes of later grants.
int64_t Admission::part_cost() const {
  const int64_t third_bytes = budget_.plan_bytes() / kShare;
  constexpr int64_t kInitialWindowPackets = 10;
  return budget_.pacer().paced() ? std::min(third_bytes, kInitialWindowPackets * budget_.packet_bytes()) : third_bytes;
}

// Returns all bytes, or the payload of k full packets without their framing.
int64_t Admission::PartWithin(int64_t bytes, int64_t cost_bytes) const {
  if (outstanding_.Cost(bytes) <= cost_bytes) return bytes;
  const int64_t packet_bytes = options_.profile.packet_payload_bytes;
  const int64_t packets = std::max<int64_t>(LargestPayloadWithin(options_.profile, cost_bytes) / packet_bytes, 1);
  const int64_t run_bytes = packets * packet_bytes;
  // Use at least half of the packets for payload, because record_overhead_bytes has no upper bound.
  return std::min(bytes, std::max(run_bytes - options_.record_overhead_bytes, (run_bytes + 1) / 2));
}

int64_t Admission::PartOf(int64_t bytes, const QueuedWorker& worker) const {
  if (!worker.bounded) return PartOf(bytes);
  return PartWithin(bytes, std::min(part_cost(), laps_.ShareBytes(worker)));
}

int64_t Admission::GrantOf(const Call& call) const {
  return call.turn_of_tunnel() ? std::min(call.rest(), call.window_bytes) : PartOf(call.rest(), *call.worker);
}

std::optional<int64_t> Admission::BytesWithRequest(const Call& call, TimePoint now) const {
  if (!budget_.limited()) return kMaxResponseBytes;
  if (!granting()) return BytesInRolling(call);
  if (const std::optional<int64_t> bytes = EarlyBytes(call)) return bytes;
  if (WaitsForRoomUntil(call, now) < TimePoint::max()) return std::nullopt;
  return MayAsk(call) ? std::optional<int64_t>(0) : std::nullopt;
}

bool Admission::HandshakeHasShare(const Call& call) const {
  const int64_t share_bytes = third() / (call.block->retries ? 2 : 1);
  const int64_t charged_bytes = budget_.handshake_bytes();
  return charged_bytes == 0 || charged_bytes + outstanding_.Cost(call.expected_bytes) <= share_bytes;
}

// Keep room for the headers of calls that are out. A handshake needs no room for the headers of a full window.
bool Admission::HandshakeFits(const Call& call) const {
  const int64_t cost_bytes = outstanding_.Cost(call.expected_bytes);
  return budget_.HasRoom(cost_bytes + HeaderBytes()) || budget_.HasRoomAlone(cost_bytes, HeaderBytes());
}

// For rolling and batches. Batches never split a response, as in the source paper. Rolling sends a part if the whole
// response would never fit the budget, or costs more than the share of its worker, or if the link is paced.
std::optional<int64_t> Admission::BytesInRolling(const Call& call) const {
  if (order_.ReadyPrecedes(*call.block)) return std::nullopt;
  int64_t most_bytes = call.expected_bytes;
  if (budget_.pacer().paced()) {
    most_bytes = PartOf(most_bytes, *call.worker);
  } else if (call.worker->bounded) {
    most_bytes = PartWithin(most_bytes, laps_.ShareBytes(*call.worker));
  }
  if (budget_.HasRoom(outstanding_.Cost(most_bytes))) return most_bytes;
  const bool batched = options_.policy == SchedulePolicy::kBatches;
  const int64_t bytes = batched ? call.expected_bytes : PartOf(call.expected_bytes, *call.worker);
  return budget_.HasRoomAlone(outstanding_.Cost(bytes)) ? std::optional(bytes) : std::nullopt;
}

// A grant costs a packet and a round trip, and serves to choose among more responses than the link can take. If workers
// respond at once, or all requested responses fit a third of the budget, requests leave with their grants. Such grants
// cannot be revoked. If one packet costs more than the third, no bytes are granted early: a grant of one packet in
// addition to them would exceed the budget.
std::optional<int64_t> Admission::EarlyBytes(const Call& call) const {
  const int64_t bytes = EarlyBytesWithRoom(call);
  return bytes > 0 && HasRoomForEarly(bytes) ? std::optional(bytes) : std::nullopt;
}

bool Admission::AllFits(const Call& call) const {
  return !call.out() && WorkUpTo(*call.block).remaining_bytes <= third();
}

// Returns how many bytes the call is granted early if there is room; 0: none.
int64_t Admission::EarlyBytesWithRoom(const Call& call) const {
  if (call.may_idle || !call.worker->open || (call.worker->bounded && call.worker->share.slow())) return 0;
  if (!AllFits(call)) {
    if (!window_.ReadyAtOnce(budget_.bytes())) return 0;
    if (!call.out() && sent_.any_early()) return 0;  // calls that are out come first
  }
  if (order_.ReadyPrecedes(*call.block)) return 0;
  const int64_t bytes = PartOf(call.expected_bytes);
  // The headers arrive with the early bytes. Headers of the usual size are small compared with the grant, so only the
  // excess of larger headers counts.
  const int64_t large_header_bytes = window_.LargeHeaderBytes(sent_.silent() + 1);
  if (budget_.early_bytes() + outstanding_.Cost(bytes) + large_header_bytes > third()) return 0;
  if (outstanding_.Cost(options_.profile.packet_payload_bytes) > third()) return 0;
  return bytes;
}

bool Admission::HasRoomForEarly(int64_t bytes) const {
  const int64_t cost_bytes = outstanding_.Cost(bytes);
  return budget_.HasRoom(cost_bytes + YoungHeaderBytes() + SilentHeaderBytes(1, cost_bytes));
}

// A small block beside a large one finds the budget full, but soon there is room, and nothing overtakes the block. A
// request that left without a grant would wait in the port twice: with its headers, and with the granted bytes.
TimePoint Admission::WaitsForRoomUntil(const Call& call, TimePoint now) const {
  // Most calls that wait are older than a drain time, so this comes first.
  const TimePoint until = SaturatingAdd(call.block->since, budget_.drain_time());
  if (!granting() || until <= now || budget_.idle() || !AllFits(call)) return TimePoint::max();
  const int64_t bytes = EarlyBytesWithRoom(call);
  return bytes == 0 || HasRoomForEarly(bytes) ? TimePoint::max() : until;
}

bool Admission::MayAsk(const Call& call) const {
  const int64_t header_bytes = HeaderBytes();
  // With a lease, the headers of calls that are out may take the room that a ready response waits for. Another request
  // would delay that response further. Without a lease that response needs no room, and the request must have its turn:
  // after a window that fills the budget, the next window is ready. Otherwise no request would ever leave.
  if (!budget_.may_exceed() && !queue_.empty() && budget_.idle()) return false;
  // If nothing is in flight and only stragglers are out, no other event would make room later. So send one request,
  // however small the budget is.
  if (sent_.young() == 0 && budget_.idle()) return budget_.HasRoomAlone(window_.HeaderBytes(1), header_bytes);
  return WindowIsOpen(*call.block) && budget_.HasRoom(header_bytes + window_.HeaderBytes(1));
}

// The window of a class is sized for the whole link, so one class alone may fill it. Other classes that fill theirs
// leave the class its share, and calls of larger blocks do not stop the requests of smaller ones.
bool Admission::WindowIsOpen(const QueuedBlock& block) const {
  const auto window = [this](size_t of, double share) {
    return budget_.idle() ? window_.FirstRequests(budget_.bytes(), of, share)
                          : window_.Requests(budget_.bytes(), of, share);
  };
  const size_t traffic_class = block.traffic_class;
  const int64_t ungranted = std::min(Ungranted(traffic_class), WorkUpTo(block).ungranted_calls);
  if (ungranted < window(traffic_class, order_.ShareOf(traffic_class))) return true;
  if (options_.class_count() == 1) return false;
  double full = 0;
  for (size_t of = 0; of < options_.class_count() && full < 1; ++of) {
    full += static_cast<double>(Ungranted(of)) / static_cast<double>(window(of, 1));
  }
  return full < 1;
}

bool Admission::HasRoomForGrant(const Call& call, int64_t bytes) const {
  const int64_t cost_bytes = outstanding_.CostOfGrant(call, bytes);
  return budget_.HasRoom(cost_bytes + HeaderReserve(call)) || budget_.HasRoomAlone(cost_bytes, HeaderBytes());
}

// Keep room for the headers of a full window in addition to the grants, and not only for calls that are out. Otherwise
// small responses fill the budget, requests stop, and the link goes idle. More calls than the window may be out after
// the window has shrunk. Byte tunnels alone may fill the budget.
int64_t Admission::HeaderReserve(const Call& call) const {
  if (!granting()) return 0;
  const bool no_requests = blocks_.waiting_calls() == 0 && sent_.young() == 0;
  if (call.turn_of_tunnel() && no_requests) return HeaderBytes();
  const int64_t window = window_.Requests(budget_.bytes());
  return window_.HeaderBytes(std::max(window, sent_.young())) + SilentHeaderBytes(0, 0);
}

int64_t Admission::SilentHeaderBytes(int64_t more_calls, int64_t more_early_bytes) const {
  const int64_t share_bytes = third() - budget_.early_bytes() - more_early_bytes;
  const int64_t calls = sent_.stragglers() + sent_.silent() + more_calls;
  return std::max<int64_t>(std::min(window_.HeaderBytes(calls), share_bytes), 0);
}

int64_t Admission::NeedBytes(const Call* ready, const Call* ahead, const Call* waiting) const {
  int64_t need_bytes = ready == nullptr ? 0 : outstanding_.CostOfGrant(*ready, GrantOf(*ready));
  if (ahead != nullptr) need_bytes = std::max(need_bytes, outstanding_.Cost(ahead->expected_bytes));
  if (waiting != nullptr) {
    const bool whole = options_.policy == SchedulePolicy::kBatches ||
                       (!granting() && outstanding_.Cost(waiting->expected_bytes) <= budget_.plan_bytes());
    const int64_t bytes = whole ? waiting->expected_bytes : PartOf(waiting->expected_bytes);
    need_bytes = std::max(need_bytes, outstanding_.Cost(bytes));
  }
  if (granting() && (ahead != nullptr || waiting != nullptr)) {
    need_bytes = std::max(need_bytes, window_.HeaderBytes(1));
  }
  if (need_bytes == 0) return 0;
  // Early bytes and handshakes keep their room until other calls need it. Early bytes and silent headers may take a
  // third of the lease, which is half of `need_bytes`.
  const int64_t early_bytes = budget_.early_bytes();
  const int64_t header_bytes = window_.HeaderBytes(sent_.stragglers() + sent_.silent());
  return need_bytes + early_bytes + budget_.handshake_bytes() +
         std::clamp<int64_t>((need_bytes + 1) / 2 - early_bytes, 0, header_bytes);
}

}  // namespace sluice
