#include "lib/scheduling/admission.h"

#include <algorithm>
#include <utility>

#include "sluice/plan.h"

#include "absl/time/time.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {

Admission::Admission(const ScheduleOptions& options, LiveCalls& calls)
    : options_(options),
      blocks_(calls.blocks()),
      budget_(calls.budget()),
      outstanding_(calls.outstanding()),
      laps_(calls.laps()),
      queue_(calls.queue()),
      order_(calls.order()),
      sent_(calls.sent()) {}

// A paced grant is no more than the least congestion window of a worker (RFC 6928): the rest would come a round trip
// later, and meet the bytes of later grants.
int64_t Admission::part_cost() const {
  const int64_t third_bytes = budget_.plan_bytes() / kPartsOfBudget;
  constexpr int64_t kInitialWindowPackets = 10;
  return budget_.pacer().paced() ? std::min(third_bytes, kInitialWindowPackets * budget_.packet_bytes()) : third_bytes;
}

// Returns all bytes, or the payload of k full packets without their framing.
int64_t Admission::PartWithin(int64_t bytes, int64_t cost_bytes) const {
  if (outstanding_.Cost(bytes) <= cost_bytes) return bytes;
  const int64_t packet_bytes = options_.profile.packet_payload_bytes;
  int64_t packets = std::max<int64_t>(LargestPayloadWithin(options_.profile, cost_bytes) / packet_bytes, 1);
  // Leave two packets for the last part: TCP repairs the loss of a single one by a timeout only.
  if (packets > 1 && bytes + options_.record_overhead_bytes <= (packets + 1) * packet_bytes) --packets;
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

std::optional<int64_t> Admission::BytesWithRequest(const Call& call) const {
  if (!budget_.limited()) return kMaxResponseBytes;
  if (!granting()) return BytesInRolling(call);
  if (const std::optional<int64_t> bytes = EarlyBytes(call)) return bytes;
  return MayAsk(call) ? std::optional<int64_t>(0) : std::nullopt;
}

bool Admission::HandshakeHasShare(const Call& call) const {
  const int64_t share_bytes = third() / (call.block->retries ? 2 : 1);
  const int64_t charged_bytes = budget_.handshake_bytes();
  return charged_bytes == 0 || charged_bytes + outstanding_.Cost(call.expected_bytes) <= share_bytes;
}

// Keep room for the headers of calls that are out. A handshake needs no room for the headers of further requests.
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
// respond at once, or all responses of the class fit a third of the budget, requests leave with their grants. Such
// grants cannot be revoked. If one packet costs more than the third, no bytes are granted early: a grant of one packet
// in addition to them would exceed the budget.
std::optional<int64_t> Admission::EarlyBytes(const Call& call) const {
  if (call.may_idle || !queue_.empty() || call.worker->early_debt > 0) return std::nullopt;
  if (outstanding_.late_bytes() >= budget_.bytes()) return std::nullopt;  // all of them may come at once
  if (!call.worker->open || (call.worker->bounded && call.worker->share.slow())) return std::nullopt;
  const bool all_fit = !call.out() && blocks_.remaining_bytes(call.block->traffic_class) <= third();
  if (!all_fit) {
    if (!sent_.ReadyAtOnce()) return std::nullopt;
    if (!call.out() && sent_.early_classes().any()) return std::nullopt;  // calls that are out come first
  }
  const int64_t bytes = PartOf(call.expected_bytes);
  const int64_t cost_bytes = outstanding_.Cost(bytes);
  // The headers arrive with the early bytes. Headers of the usual size are small compared with the grant, so only the
  // excess of larger headers counts.
  const int64_t large_bytes = sent_.large_header_bytes() + sent_.LargeHeaderBytes(*call.worker);
  if (budget_.early_bytes() + cost_bytes + large_bytes > third()) return std::nullopt;
  if (outstanding_.Cost(options_.profile.packet_payload_bytes) > third()) return std::nullopt;
  const int64_t header_bytes = YoungHeaderBytes() + SilentHeaderBytes(sent_.usual_header_bytes(), cost_bytes);
  return budget_.HasRoom(cost_bytes + header_bytes) ? std::optional(bytes) : std::nullopt;
}

// A request costs the room for its headers. So it waits for this room alone, except that its own block and its own
// class bound the responses that wait at workers.
bool Admission::MayAsk(const Call& call) const {
  // With a lease, the headers of calls that are out may take the room that a ready response waits for. Another request
  // would delay that response further. Without a lease that response needs no room, and the request must have its turn:
  // after a window that fills the budget, the next window is ready. Otherwise no request would ever leave.
  if (!budget_.may_exceed() && !queue_.empty() && budget_.idle()) return false;
  const int64_t header_bytes = HeaderBytesOf(call);
  if (MayAskAlone()) return budget_.HasRoomAlone(header_bytes, HeaderBytes());
  return MayAskWithRoom(*call.block) && budget_.HasRoom(HeaderBytes() + header_bytes);
}

// If nothing is in flight and only stragglers are out, no other event would make room later. So one request leaves,
// however small the budget is.
bool Admission::MayAskAlone() const {
  return sent_.young() == 0 && budget_.idle();
}

// While no response waits, a request may leave with early bytes.
bool Admission::NoRequestFits() const {
  return RequestsNeedRoom() && !budget_.HasRoom(HeaderBytes() + sent_.usual_header_bytes());
}

bool Admission::RequestsNeedRoom() const {
  return granting() && !queue_.empty() && !MayAskAlone();
}

QueuedBlock* Admission::NextRequest(size_t traffic_class) const {
  QueuedBlock* const block = order_.NextWaiting(traffic_class);
  if (!RequestsNeedRoom() || (block != nullptr && MayAskWithRoom(*block))) return block;
  refused_.set(traffic_class);
  return nullptr;
}

// Each event looks for a request of any class, and most events change one class.
ClassBits Admission::Refused() const {
  if (!RequestsNeedRoom()) return {};
  const ClassBits changed = blocks_.TakeChanged();
  if (changed.none()) return refused_;
  const ClassBits bounds = KeptBounds();
  return refused_ = std::exchange(kept_bounds_, bounds) == bounds ? refused_ & ~changed : ClassBits();
}

ClassBits Admission::KeptBounds() const {
  const auto bound_bytes = static_cast<double>(options_.ready_bytes);
  const auto ready_bytes = static_cast<double>(blocks_.ready_bytes());
  const auto coming_bytes = static_cast<double>(blocks_.ready_bytes() + sent_.expected_bytes());
  ClassBits kept;
  kept[0] = coming_bytes < bound_bytes / 4;
  kept[1] = coming_bytes < bound_bytes / 2;
  kept[2] = ready_bytes < bound_bytes * 7 / 8;
  kept[3] = (sent_.young() + 1) * sent_.usual_header_bytes() <= third();
  return kept;
}

bool Admission::MayAskWithRoom(const QueuedBlock& block) const {
  return block.request_rank != BlockOrder::kStocked && HasShareOfHeaders(block.traffic_class) && HasShareOfReady(block);
}

// The headers of young calls, of the usual size, take at most a third.
bool Admission::HasShareOfHeaders(size_t traffic_class) const {
  const int64_t usual_bytes = sent_.usual_header_bytes();
  return HasShare(traffic_class, (sent_.young() + 1) * usual_bytes - 1,
                  (sent_.young(traffic_class) + 1) * usual_bytes - 1, static_cast<double>(third()));
}

// Responses that are ready and wait take memory at workers. Requests stop at a quarter of the bound, with the expected
// bytes of young calls, and those of small blocks at half of it. Beyond that, a block may send its first request, and
// blocks that are known to be small may go on. So the scans of a method leave room to its queries, whatever is
// expected.
bool Admission::HasShareOfReady(const QueuedBlock& block) const {
  constexpr int64_t kFirstRequests = 8;
  constexpr int64_t kSmallRequests = 64;
  const size_t of = block.traffic_class;
  const auto bound_bytes = static_cast<double>(options_.ready_bytes);
  const int64_t all_bytes = blocks_.ready_bytes();
  const int64_t class_bytes = blocks_.ready_bytes(of);
  const bool small = block.small(budget_.plan_bytes());
  if (HasShare(of, all_bytes + sent_.expected_bytes(), class_bytes + sent_.expected_bytes(of),
               small ? bound_bytes / 2 : bound_bytes / 4)) {
    return true;
  }
  const int64_t most_young = block.sent_requests == 0 ? kFirstRequests : block.known_responses > 0 ? kSmallRequests : 0;
  return small && sent_.young(of) < most_young && HasShare(of, all_bytes, class_bytes, bound_bytes * 7 / 8);
}

// One class alone may take all of a bound. Other classes that take all of it leave the class its share by weight.
bool Admission::HasShare(size_t traffic_class, int64_t all_bytes, int64_t class_bytes, double bound_bytes) const {
  if (static_cast<double>(all_bytes) < bound_bytes) return true;
  return options_.class_count() > 1 && static_cast<double>(class_bytes) < order_.ShareOf(traffic_class) * bound_bytes;
}

// The window of a tunnel that takes the whole budget comes after the requests that may leave now. Otherwise they would
// never leave while such windows follow each other.
bool Admission::HasRoomForGrant(const Call& call, int64_t bytes) const {
  if (!LeavesRoomToHeavier(call)) return false;
  const int64_t cost_bytes = outstanding_.CostOfGrant(call, bytes);
  // The first bound is cheaper, and usually decides.
  if (budget_.HasRoom(cost_bytes + HeaderReserve(call)) && budget_.HasRoom(cost_bytes + WantedHeaderBytes()))
    return true;
  return budget_.HasRoomAlone(cost_bytes, HeaderBytes()) && !(granting() && call.turn_of_tunnel() && RequestMayLeave());
}

// A heavier class has responses that will be ready soon. If this class fills the port before that, each of them waits
// until the port has drained, whatever the weights: start-time fair queueing gives away the room that no class uses at
// the moment. So this class takes its share of the budget, or as much as keeps the link busy until the worker answers
// the next grant, a round trip later.
bool Admission::LeavesRoomToHeavier(const Call& call) const {
  if (!granting() || options_.class_count() == 1) return true;
  const double share = order_.ShareOf(call.block->traffic_class);
  double heavier_share = 0;
  for (size_t i = 0; i < options_.class_count(); ++i) {
    if (order_.ShareOf(i) <= share || blocks_.remaining_bytes(i) == 0) continue;
    if (queue_.classes_with_turns()[i]) return true;  // it has room, and this class has its turn
    heavier_share += order_.ShareOf(i);
  }
  if (heavier_share == 0) return true;
  const LinkProfile& profile = options_.profile;
  const double path_bytes = profile.capacity_bytes_per_second * absl::ToDoubleSeconds(profile.propagation_rtt);
  const auto budget_bytes = static_cast<double>(budget_.bytes());
  const double busy_bytes = budget_bytes / 6 + 2 * path_bytes;
  // Early bytes and the bytes of slow workers may come late. Most bytes of aborted calls have come.
  const int64_t coming_bytes = budget_.in_flight_bytes() - budget_.early_bytes() - budget_.handshake_bytes() -
                               budget_.slow_bytes() - budget_.draining_bytes();
  return static_cast<double>(coming_bytes) <= std::max(budget_bytes * share / (share + heavier_share), busy_bytes);
}

// Requests that wait for room for their headers alone get it before further grants, and there is always room for a few
// of them. Otherwise small responses fill the budget, requests stop, and the link goes idle one think time later. Byte
// tunnels alone may fill the budget.
int64_t Admission::HeaderReserve(const Call& call) const {
  constexpr int64_t kFewRequests = 4;
  if (!granting()) return 0;
  if (call.turn_of_tunnel() && blocks_.waiting_calls() == 0 && sent_.young() == 0) return HeaderBytes();
  const int64_t few_bytes = std::min(kFewRequests * sent_.usual_header_bytes(), third());
  return std::max(few_bytes, YoungHeaderBytes()) + SilentHeaderBytes(0, 0);
}

int64_t Admission::WantedHeaderBytes() const {
  if (!granting()) return 0;
  const Call* const request = FindRequest([this](const Call& call) { return MayAskWithRoom(*call.block); });
  if (request == nullptr) return 0;
  return std::max(third(), YoungHeaderBytes() + HeaderBytesOf(*request)) + SilentHeaderBytes(0, 0);
}

bool Admission::RequestMayLeave() const {
  return FindRequest([this](const Call& call) { return MayAsk(call); }) != nullptr;
}

template <class Predicate>
const Call* Admission::FindRequest(Predicate predicate) const {
  if (blocks_.waiting_classes().none()) return nullptr;
  const ClassBits refused = Refused();
  for (const size_t traffic_class : order_.classes()) {
    const QueuedBlock* const block = refused[traffic_class] ? nullptr : NextRequest(traffic_class);
    if (block != nullptr && predicate(block->waiting.front())) return &block->waiting.front();
  }
  return nullptr;
}

int64_t Admission::YoungHeaderBytes() const {
  return sent_.young() * sent_.usual_header_bytes() + sent_.large_header_bytes();
}

int64_t Admission::SilentHeaderBytes(int64_t more_bytes, int64_t more_early_bytes) const {
  const int64_t share_bytes = third() - budget_.early_bytes() - more_early_bytes;
  return std::max<int64_t>(std::min(sent_.silent_header_bytes() + more_bytes, share_bytes), 0);
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
    need_bytes = std::max(need_bytes, sent_.usual_header_bytes());
  }
  if (need_bytes == 0) return 0;
  // Early bytes and handshakes keep their room until other calls need it. Early bytes and silent headers may take a
  // third of the lease, which is half of `need_bytes`.
  const int64_t early_bytes = budget_.early_bytes();
  const int64_t header_bytes = sent_.silent_header_bytes();
  return need_bytes + early_bytes + budget_.handshake_bytes() +
         std::clamp<int64_t>((need_bytes + 1) / 2 - early_bytes, 0, header_bytes);
}

}  // namespace sluice
