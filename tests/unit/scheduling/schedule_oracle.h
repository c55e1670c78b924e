#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sluice/plan.h"

#include "lib/scheduling/link_schedule.h"

namespace sluice {

// A second implementation of the rules of a LinkSchedule, written only from its contract. It uses plain loops, and its
// own arithmetic for costs, parts, turns, batches, slots and stalls. It takes the number of stragglers and the shares
// of workers from the schedule, and checks their bounds. It does not compute which class has the turn, but checks that
// classes which wait at the same time get their parts. It does not compute which worker of those that share room is
// next, and requires nothing of their requests. Call Begin, then the event, then
// Apply, then End. There is one for each schedule.
class ScheduleOracle {
 public:
  struct Call {
    BlockId block = 0;
    CallId id;
    uint32_t worker = 0;
    int64_t expected = 0;  // bytes
    bool may_idle = false;
    int64_t batch = 0;
    enum { kParked, kWaiting, kSent, kReady, kInFlight, kEnded } phase = kWaiting;
    bool aborted = false;
    bool straggles = false;
    bool unwanted = false;
    bool ready = false;            // its first prefix has arrived
    bool late_worker = false;      // while it was sent, its worker was slow or full, or a share fell
    bool unbounded = false;        // it left unscheduled, so all of its messages may come
    bool stalled = false;          // outstanding bytes, except early ones, are no longer charged
    bool times_early = false;      // its stall timer runs for early bytes alone
    bool kept_from_early = false;  // its worker had no right to early bytes when it was sent
    bool late = false;             // early bytes did not come in time, and are no longer charged
    int64_t message = 0;           // the order in which messages were ready
    int64_t outstanding = 0;
    int64_t early = 0;
    int64_t remaining = 0;
    int64_t received = 0;
    int64_t header_bytes = 0;  // on the wire, before it was ready
    int64_t header_room = 0;   // for its headers, since it was sent
    int64_t large_room = 0;    // in addition
    TimePoint sent_at;
    TimePoint stalls_at = TimePoint::max();
  };
  struct Block {
    TimePoint since;
    TimePoint deadline;
    bool ahead = false;
    bool retry = false;
    size_t traffic_class = 0;
    bool has_turn = false;         // batches
    std::deque<uint64_t> waiting;  // tags, in the order in which they must leave
    int64_t parked = 0;
    int64_t out = 0;      // sent and not ended
    int64_t sent = 0;     // since it was submitted
    int64_t known = 0;    // responses that were ready, or ended instead
    int64_t claimed = 0;  // cost of the bytes that were granted or announced to calls that have ended
    bool cancelled = false;
    int64_t last_batch = -1;  // of the calls sent
    int64_t queued_batches = 0;
    std::chrono::nanoseconds slot{0};
    TimePoint earliest_slot = TimePoint::min();  // an earlier batch would meet the previous one
    TimePoint latest_slot = TimePoint::min();    // the next batch is due by then
  };

  // `load` returns the share of a worker after the last event.
  ScheduleOracle(const ScheduleOptions& options, std::chrono::nanoseconds byte_time,
                 std::function<WorkerLoad(uint32_t)> load);

  void Begin(TimePoint now);
  // Tags are numbered in the order of submission.
  void Submitted(BlockId id, const std::vector<CallRequest>& calls, const std::vector<CallId>& ids, TimePoint deadline,
                 bool ahead, size_t traffic_class = 0);
  void Added(BlockId block, CallId id, const CallRequest& call);
  void Unparked(uint64_t tag);
  void Unsent(uint64_t tag);
  void HeadersCame(uint64_t tag, int64_t wire_bytes);
  void Readied(uint64_t tag, int64_t remaining_bytes, int64_t withheld_bytes);
  void Unwanted(uint64_t tag);
  void Received(uint64_t tag, int64_t bytes);
  void Finished(uint64_t tag, CallEnd end);
  void Cancelled(BlockId id);
  void CallCancelled(uint64_t tag);
  void BudgetSet(int64_t bytes);
  void PolicySet(SchedulePolicy policy);
  void Apply(const std::vector<Action>& actions, const ScheduleState& state);
  void End(const ScheduleState& state, TimePoint next_timer);
  void CheckClasses(const std::vector<TrafficClassState>& classes);

  // Returns the first failure, or an empty string.
  const std::string& failure() const { return failure_; }
  void Fail(const std::string& what);

  TimePoint now() const { return now_; }
  const std::map<BlockId, Block>& blocks() const { return blocks_; }
  const Call& call(uint64_t tag) const { return calls_.at(tag); }
  uint64_t next_tag() const { return calls_.size(); }
  // Returns the headers that calls may still send, even if the budget has no room for all of them.
  int64_t AllHeaderBytes() const;
  int64_t InFlightBytes() const;
  int64_t UncountedBytes() const;  // the part that slow workers hold beyond a third of the budget
  bool AnyStalled() const;         // bytes that are not charged any more may come
  bool AnyUnbounded() const;
  int64_t BufferBytes(int64_t payload_bytes) const;  // cost of a burst in the buffer
  int64_t WaitingCalls(size_t traffic_class) const;  // including parked ones

 private:
  // A response that waits for a grant. turns_ is in the order in which they began to wait.
  struct Turn {
    uint64_t tag;
    int rank;  // by the rest of its message
    TimePoint since;
  };
  // The place of a block among all blocks.
  using Place = std::pair<int, BlockId>;

  // The bytes that two classes got while both waited at each grant, as a difference by weight.
  struct Contest {
    double lead = 0;
    double most = 0;
    double least = 0;
  };
  struct ClassRecord {
    // Bytes that overtook the oldest call: the least and the most that the schedule may count. It does not look at full
    // workers at the same moments.
    int64_t overtook_at_least = 0;
    int64_t overtook_at_most = 0;
    std::optional<uint64_t> overtaken;  // the oldest turn, for overtook_at_least
    int64_t most_cost = 0;              // of one grant
    int64_t received = 0;               // cost
    int64_t overtook_requests = 0;      // requests of others since the last one of the oldest block that waits
  };

  // Record the aborts and ends that must follow without an admission.
  void ExpectAbort(uint64_t tag);
  void ExpectEnd(uint64_t tag, Action::Kind kind);
  void ExpectAbortsAndEnds(BlockId id, bool granted_too, Action::Kind end);
  void ExpectExpiries();

  void Send(const Action& action);
  void CheckRequestOrder(uint64_t tag);
  void Grant(const Action& action);
  void GrantEarly(const Action& action);
  void Charge(Call& call, bool progress);
  void ObserveHeaders(Call& call);
  void Wait(uint64_t tag);
  void NoteGranted(uint64_t tag, int64_t cost);
  void NoteContests(uint64_t tag, int64_t cost);
  void StopWaiting(uint64_t tag);
  void GoneFrom(Block& block);
  void DealAgain(Block& block);
  int64_t BatchesOf(int64_t calls, int64_t largest) const;
  void GiveTurn();
  void NoteLateWorkers();
  void Remove(std::deque<uint64_t>& tags, uint64_t tag);
  void Expect(bool holds, const std::string& what);
  void CheckBatch(const Call& call, Block& block);
  void CheckIdle();
  void CheckIdleClasses();
  void CheckWaiting();
  void CheckState(const ScheduleState& state);
  void CheckStragglers(const ScheduleState& state);
  void CheckTimer(TimePoint next_timer);
  void MarkStragglers(const ScheduleState& state);
  const Block* WaitsForSlot() const;
  bool granting() const { return options_.policy == SchedulePolicy::kGrants; }
  bool limited() const { return options_.policy != SchedulePolicy::kUnscheduled; }
  bool batched() const { return options_.policy == SchedulePolicy::kBatches; }
  int64_t CallsIn(int phase) const;

  // Admission.
  struct Waiting {
    BlockId block = 0;
    uint64_t tag = 0;
  };
  std::optional<Waiting> FirstAhead() const;  // of the handshakes
  // Returns the first call of the other blocks of the class, or of the oldest of them, without calls of full workers.
  // `certain`: without calls, either, that may be held since their workers share room.
  std::optional<Waiting> FirstWaiting(size_t traffic_class, bool oldest = false, bool certain = false) const;
  bool AnyWaiting() const;
  bool HandshakeHasShare(const Call& call) const;
  bool HandshakeFits(const Call& call) const;
  bool RoomIsMade() const;                      // for a handshake, so no other call is admitted
  std::optional<uint64_t> LongestTurn() const;  // of open workers, wanted or not
  std::optional<uint64_t> NextTurn(size_t traffic_class, bool oldest = false) const;
  bool IsNextTurn(uint64_t tag) const;
  bool AnyTurn() const { return LongestTurn().has_value(); }
  // Returns nullopt if the class has no turn, or its next call is not certain.
  std::optional<bool> NextTurnFits(size_t traffic_class) const;
  std::optional<bool> NextRequestMustLeave(size_t traffic_class) const;
  // Returns whether a call may be held although its worker has room: another call of the worker comes first by size.
  bool MayBeHeld(const Waiting& waiting) const;
  // Returns whether the schedule may count a budget of bytes that overtook the oldest call of the class, which is then
  // due.
  bool OldestMayBeDue(size_t traffic_class) const { return classes_[traffic_class].overtook_at_most >= budget_; }
  bool MayOvertake(const Call& call, bool oldest = false) const;
  bool MayOvertakeByEitherRule(const Call& call) const {
    return MayOvertake(call) || (OldestMayBeDue(ClassOf(call)) && MayOvertake(call, true));
  }
  bool MustOvertake(const Call& call) const {
    return MayOvertake(call) && (!OldestMayBeDue(ClassOf(call)) || MayOvertake(call, true));
  }
  // Returns whether a response of another class is ready. It may then be the turn of that class.
  bool OtherClassHasTurn(const Call& call) const { return OpenTurns().size() > OpenTurns(ClassOf(call)).size(); }
  bool MayRank() const { return granting() || options_.policy == SchedulePolicy::kRolling; }
  bool Ranked() const { return options_.shortest_first && MayRank(); }
  static int RankOf(int64_t bytes);
  int64_t RemainingBytes(BlockId id) const;  // with expected sizes
  int64_t KnownBytes(BlockId id) const;
  int64_t ClaimedBytes(BlockId id) const;
  bool IsSized(BlockId id) const;
  bool IsSmall(BlockId id) const;
  int64_t ReadyBytes(std::optional<BlockId> id, std::optional<size_t> traffic_class = {}) const;
  static int64_t Claimed(const Call& call);
  int RankOfBlock(BlockId id) const;
  bool IsLate(BlockId id) const;
  Place PlaceOf(BlockId id) const { return {RankOfBlock(id), id}; }
  int RequestRankOf(BlockId id) const;
  Place RequestPlaceOf(BlockId id) const { return {RequestRankOf(id), id}; }
  std::vector<Turn> OpenTurns(std::optional<size_t> traffic_class = {}) const;  // wanted; default: of all classes
  const Turn* OldestTurn(const std::vector<Turn>& turns) const;
  bool MayGrant(const Call& call, int64_t bytes, int64_t wanted_header_bytes) const;
  bool LeavesRoomToHeavier(const Call& call) const;
  bool MayGoEarly(const Call& call, int64_t bytes) const;
  bool MustGoEarly(const Call& call) const;
  int64_t AskedOfClass(size_t traffic_class) const;
  bool MayAsk(const Call& call) const;
  bool MayAskWithRoom(const Call& call) const;
  bool HasShare(size_t traffic_class, int64_t all, int64_t of_class, double bound) const;
  // The room for all headers with those of a request that waits for this room alone; nullopt if only the schedule knows
  // which request is next.
  std::optional<int64_t> WantedHeaderBytes() const;
  bool MayLeaveWith(const Call& call, bool ahead, int64_t bytes) const;
  bool MustLeave(const Call& call) const;

  size_t ClassOf(const Call& call) const { return blocks_.at(call.block).traffic_class; }
  double WeightOf(size_t traffic_class) const {
    return options_.classes.empty() ? 1 : options_.classes[traffic_class].weight;
  }
  bool UsesTurn(size_t traffic_class) const {  // it waits for bytes
    return !OpenTurns(traffic_class).empty() || (!granting() && FirstWaiting(traffic_class).has_value());
  }
  int64_t YoungCalls(std::optional<size_t> traffic_class = {}) const;
  int64_t YoungExpected(std::optional<size_t> traffic_class = {}) const;

  // The workers.
  bool Bounded(const Call& call) const {
    return call.worker != 0 && !blocks_.at(call.block).ahead &&
           (granting() || options_.policy == SchedulePolicy::kRolling);
  }
  bool Slow(const Call& call) const { return Bounded(call) && load_(call.worker).slow; }
  bool Open(const Call& call) const;
  bool SlowAreFull() const { return SlowBytes() >= CountedSlowBytes() + budget_ / 10 * 3; }
  int64_t CountedSlowBytes() const;
  bool HeadersFit(const Call& call) const;
  bool MayBeAsked(const Call& call) const { return Open(call) && (!granting() || HeadersFit(call)); }
  // Only the schedule decides which of the workers that share room is next.
  bool SharesRoom(const Call& call) const { return Slow(call) || (granting() && LargeRoomOf(call) > 0); }
  uint32_t HeaderWorker(const Call& call) const { return blocks_.at(call.block).ahead ? ~uint32_t{0} : call.worker; }
  int64_t LargeRoomOf(const Call& call) const;
  int64_t WorkerCharge(uint32_t worker) const;
  int64_t WorkerOwes(uint32_t worker) const;
  static bool Owes(const Call& call) {
    return call.phase == Call::kInFlight && call.ready && !call.aborted &&
           std::min(call.outstanding, call.remaining) > 0;
  }
  int64_t OwingCalls(uint32_t worker) const;
  void Hear(uint32_t worker);
  void NoteOwing();  // removes workers that no longer owe
  void NoteShares();
  void CheckShares();
  void CheckLoads(const ScheduleState& state);

  // Units of the budget.
  bool Fits(int64_t cost) const { return cost <= budget_ + PipeBytes() - InFlightBytes() + UncountedBytes(); }
  int64_t PipeBytes() const;
  int64_t PartCost() const;
  bool PacerOpen() const { return PipeBytes() == 0 || paced_until_ <= now_; }
  void Pace(int64_t cost);
  bool Alone() const { return InFlightBytes() == EarlyBytes() + HandshakeBytes() + SlowBytes(); }
  int64_t DrainingBytes() const;
  int64_t ChargeOf(const Call& call) const;
  int64_t StillToCome(const Call& call) const;
  int64_t EarlyBytes() const;
  int64_t HandshakeBytes() const;
  int64_t StartingBudget() const;
  int64_t SlowBytes() const;
  int64_t UsualHeaderCost() const;
  int64_t LargeHeaderBytes() const;
  int64_t LateBytes() const;
  int64_t YoungHeaderBytes() const;
  int64_t SilentHeaderBytes(bool with_hung) const;
  int64_t HeaderBytes(int64_t more_bytes = 0, int64_t more_early = 0) const;
  bool IsHung(const Call& call) const;
  int64_t CostOf(int64_t payload_bytes) const { return payload_bytes <= 0 ? 0 : BufferBytes(payload_bytes); }
  bool Silent(const Call& call) const;
  static int64_t Rest(const Call& call);
  int64_t PartOf(int64_t payload_bytes) const { return PartWithin(payload_bytes, PartCost()); }
  int64_t PartOf(int64_t payload_bytes, const Call& call) const;
  int64_t PartWithin(int64_t payload_bytes, int64_t cost) const;
  int64_t Packets(int64_t payload_bytes) const;
  std::chrono::nanoseconds SlotOf(int64_t payload_bytes) const;
  std::chrono::nanoseconds DrainTime() const;

  ScheduleOptions options_;
  const std::chrono::nanoseconds byte_time_;
  const std::chrono::nanoseconds jitter_;
  const int64_t buffer_;
  int64_t budget_;
  TimePoint now_ = TimePoint::min();
  TimePoint paced_until_;  // no bytes are granted before
  std::vector<Call> calls_;
  std::map<BlockId, Block> blocks_;
  std::vector<Turn> turns_;
  int64_t messages_ = 0;
  std::vector<ClassRecord> classes_;
  std::map<std::pair<size_t, size_t>, Contest> contests_;
  const std::function<WorkerLoad(uint32_t)> load_;
  std::map<uint32_t, double> shares_;         // after the last event, in parts of the budget
  std::map<uint32_t, TimePoint> owed_since_;  // by worker that owes
  std::map<uint32_t, int64_t> pauses_;        // by worker
  std::map<uint32_t, int64_t> ended_;         // calls that were sent, by worker
  bool share_fell_ = false;                   // in this event, before or after its admissions
  std::multimap<TimePoint, int64_t> draining_;
  std::set<std::pair<Action::Kind, uint64_t>> expected_;
  std::map<uint32_t, double> mean_header_bytes_;  // by worker
  std::map<uint32_t, int64_t> early_debt_;        // by worker
  bool any_ready_ = false;
  std::string failure_;
};

}  // namespace sluice
