#include "lib/scheduling/admission.h"

#include <algorithm>

#include "sluice/plan.h"

namespace sluice {

Admission::Admission(const LinkSchedule::Options& options, const LiveCalls& calls)
    : options_(options), calls_(calls), budget_(calls.budget()), granting_(options.discipline == Discipline::kGrants) {
  SetPlan();
}

void Admission::SetPlan() {
  const int64_t packet_bytes = options_.profile.packet_payload_bytes;
  part_cost_ = budget_.plan_bytes() / kShare;
  const int64_t packets = std::max<int64_t>(LargestPayloadWithin(options_.profile, part_cost_) / packet_bytes, 1);
  const int64_t run_bytes = packets * packet_bytes;
  // However large the overhead is said to be, half of the packets carry something.
  part_bytes_ = std::max(run_bytes - options_.record_overhead_bytes, (run_bytes + 1) / 2);
}

int64_t Admission::PartOf(int64_t bytes) const {
  return calls_.outstanding().Cost(bytes) <= part_cost_ ? bytes : std::min(bytes, part_bytes_);
}

std::optional<int64_t> Admission::BytesWithRequest(const Call& call) const {
  if (!budget_.limited()) return kMaxResponseBytes;
  if (call.block->ahead) return BytesAhead(call);
  if (!granting_) return BytesInRolling(call);
  if (const std::optional<int64_t> bytes = EarlyBytes(call)) return bytes;
  return MayAsk() ? std::optional<int64_t>(0) : std::nullopt;
}

// Beside the headers of what is out already; there is no window for it to leave room for.
std::optional<int64_t> Admission::BytesAhead(const Call& call) const {
  const int64_t cost_bytes = calls_.outstanding().Cost(call.expected_bytes);
  const bool leaves = budget_.HasRoom(cost_bytes + HeaderBytes()) || budget_.HasRoomAlone(cost_bytes, HeaderBytes());
  return leaves ? std::optional(call.expected_bytes) : std::nullopt;
}

// Rolling and batches. The paper knows no parts; rolling sends one where the whole answer would never fit.
std::optional<int64_t> Admission::BytesInRolling(const Call& call) const {
  if (!calls_.queue().MayOvertake(budget_.bytes())) return std::nullopt;
  if (budget_.HasRoom(calls_.outstanding().Cost(call.expected_bytes))) return call.expected_bytes;
  const bool batched = options_.discipline == Discipline::kBatches;
  const int64_t bytes = batched ? call.expected_bytes : PartOf(call.expected_bytes);
  return budget_.HasRoomAlone(calls_.outstanding().Cost(bytes)) ? std::optional(bytes) : std::nullopt;
}

// A grant costs a round trip and a packet, and is for choosing among more than the link can take. Where workers answer
// at once, or all that is asked for fits the share, requests leave with their grants, which cannot be taken back. Where
// a packet is more than the share, a grant of one beside early bytes would exceed the budget.
std::optional<int64_t> Admission::EarlyBytes(const Call& call) const {
  const bool all_fits = !call.out() && calls_.outstanding().asked_bytes() <= third();
  if (!all_fits) {
    if (!calls_.window().ReadyAtOnce(budget_.bytes())) return std::nullopt;
    if (!call.out() && calls_.sent().young() > 0) return std::nullopt;  // those that are out come first
  }
  if (!calls_.queue().MayOvertake(budget_.bytes())) return std::nullopt;
  const int64_t bytes = PartOf(call.expected_bytes);
  const int64_t cost_bytes = calls_.outstanding().Cost(bytes);
  if (budget_.early_bytes() + cost_bytes > third()) return std::nullopt;
  if (calls_.outstanding().Cost(options_.profile.packet_payload_bytes) > third()) return std::nullopt;
  const int64_t header_bytes = YoungHeaderBytes() + SilentHeaderBytes(1, cost_bytes);
  return budget_.HasRoom(cost_bytes + header_bytes) ? std::optional(bytes) : std::nullopt;
}

bool Admission::MayAsk() const {
  const int64_t header_bytes = HeaderBytes();
  // Of a lease, headers that are out have taken what a ready answer waits for. More would be in its way.
  if (!calls_.queue().empty() && budget_.idle()) return false;
  // Nothing else would let it go but a straggler, however small the budget is.
  if (calls_.sent().young() == 0 && budget_.idle())
    return budget_.HasRoomAlone(calls_.window().HeaderBytes(1), header_bytes);
  const int64_t budget = budget_.bytes();
  const int64_t window = budget_.idle() ? calls_.window().FirstRequests(budget) : calls_.window().Requests(budget);
  return calls_.sent().young() + calls_.blocks().calls(Call::Phase::kReady) < window &&
         budget_.HasRoom(header_bytes + calls_.window().HeaderBytes(1));
}

bool Admission::HasRoomForGrant(const Call& call, int64_t bytes) const {
  const int64_t cost_bytes = calls_.outstanding().CostOfGrant(call, bytes);
  return budget_.HasRoom(cost_bytes + HeaderReserve()) || budget_.HasRoomAlone(cost_bytes, HeaderBytes());
}

// Beside the grants there is room for the headers of a full window, not only of what is out: else small answers would
// fill the budget, requests would stop, and the link would run dry. More may be out than that after the window has
// shrunk.
int64_t Admission::HeaderReserve() const {
  if (!granting_) return 0;
  const int64_t window = calls_.window().Requests(budget_.bytes());
  return calls_.window().HeaderBytes(std::max(window, calls_.sent().young())) + SilentHeaderBytes(0, 0);
}

int64_t Admission::SilentHeaderBytes(int64_t more_calls, int64_t more_early_bytes) const {
  const int64_t share_bytes = third() - budget_.early_bytes() - more_early_bytes;
  const int64_t calls = calls_.sent().stragglers() + calls_.sent().silent() + more_calls;
  return std::max<int64_t>(std::min(calls_.window().HeaderBytes(calls), share_bytes), 0);
}

int64_t Admission::NeedBytes(const Call* ready, const Call* waiting) const {
  int64_t need_bytes = ready == nullptr ? 0 : calls_.outstanding().CostOfGrant(*ready, PartOf(ready->rest()));
  if (waiting != nullptr) {
    const bool whole = waiting->block->ahead || options_.discipline == Discipline::kBatches ||
                       (!granting_ && calls_.outstanding().Cost(waiting->expected_bytes) <= budget_.plan_bytes());
    const int64_t bytes = whole ? waiting->expected_bytes : PartOf(waiting->expected_bytes);
    need_bytes = std::max(need_bytes, calls_.outstanding().Cost(bytes));
    if (granting_) need_bytes = std::max(need_bytes, calls_.window().HeaderBytes(1));
  }
  if (need_bytes == 0) return 0;
  // What is silent does not give back its room before anybody is in need of it. With a third of the lease for the
  // silent, there is half of what the rest needs.
  const int64_t early_bytes = budget_.early_bytes();
  const int64_t header_bytes = calls_.window().HeaderBytes(calls_.sent().stragglers() + calls_.sent().silent());
  return need_bytes + early_bytes + std::clamp<int64_t>((need_bytes + 1) / 2 - early_bytes, 0, header_bytes);
}

}  // namespace sluice
