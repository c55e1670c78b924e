#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/string_view.h"
#include "lib/scheduling/link_schedule.h"
#include "tests/simulation/class_shares.h"
#include "tests/simulation/frame_reader.h"
#include "tests/simulation/free_room.h"
#include "tests/simulation/late_blocks.h"
#include "tests/simulation/open_response.h"
#include "tests/simulation/small_blocks.h"
#include "tests/simulation/worker_session.h"

namespace sluice::testing {

// Checks the bytes that the client lets its workers send against the budget. It has its own bookkeeping, without the
// schedule and nghttp2, and uses only the HTTP/2 frames on the client's connections (RFC 9113, section 4.1). Only the
// shares of workers, and which workers are slow, come from the schedule. If it cannot count a byte exactly, it decides
// in favour of the client: a part of each window is room for a length prefix. Requests contain the deadlines of their
// fan-outs: no request leaves after its deadline, and late blocks give way. There is one for each simulated world.
class WireOracle {
 public:
  // The schedule must be rolling or grants, with a constant budget.
  WireOracle(const ScheduleOptions& schedule, int64_t budget_bytes, size_t workers);

  // The policy changes; call it before the schedule changes. Calls that were sent or granted bytes while it was
  // unscheduled count nowhere: nothing bounds them.
  void SetPolicy(SchedulePolicy policy);

  using ConnectionId = uint64_t;
  void Opened(ConnectionId connection, size_t worker);
  void Sent(ConnectionId connection, absl::string_view bytes, TimePoint now);  // by the client
  void Received(ConnectionId connection, absl::string_view bytes,
                TimePoint now);  // by the client, in the order of both
  void Closed(ConnectionId connection, TimePoint now);
  // Returns the time until which the budget is charged for DATA of these streams that has not arrived, as far as it is
  // decided now. It is TimePoint::max() before the client gives one of them up, and a time in the past after a stall.
  TimePoint ChargedUntil(ConnectionId connection, const std::vector<uint32_t>& streams) const;
  // The turn of the client's thread has ended: the bytes that it has granted must fit now.
  void EndTurn(TimePoint now);

  // HandshakeBegins reports a SYN to a host, or the beginning of a TLS handshake, of which `bytes` cross the port. It
  // ends when the handshake is complete, or when the client gives it up. HandshakeBegins returns the time until which
  // the client charges its budget: always, or never while it is unscheduled.
  enum class HandshakeEnd { kArrived, kGivenUp };
  TimePoint HandshakeBegins(ConnectionId connection, int64_t bytes, TimePoint now);
  void HandshakeEnds(ConnectionId connection, HandshakeEnd end, TimePoint now);

  // Sets the function that returns the schedule's view of a worker: its share, and whether it is slow. The outstanding
  // bytes of slow workers beyond a third of the budget, or a packet, do not count against the budget.
  using LoadOf = std::function<WorkerLoad(size_t worker)>;
  void SetLoadOf(LoadOf load_of) { load_of_ = std::move(load_of); }

  // Sets the function that returns the number of requests that wait for room, and not for their own worker; -1 while
  // handshakes wait, and come first.
  using WaitingRequests = std::function<int64_t()>;
  void SetWaitingRequests(WaitingRequests waiting) { waiting_requests_ = std::move(waiting); }

  uint64_t gave_way() const { return late_blocks_.gave_way(); }
  uint64_t beside_larger() const { return small_blocks_.beside_larger(); }
  uint64_t beside_many() const { return class_shares_.beside_many(); }
  uint64_t early_hung() const { return early_hung_; }  // calls whose early bytes did not come in time

  // Returns breaches of these bounds: the budget, its third for early bytes, its third for handshakes, and the
  // allowance of resets. Further bounds are twice the share of a slow worker, and the window of a stream.
  std::vector<std::string> TakeBreaches() { return std::exchange(breaches_, {}); }
  uint64_t rationed_resets() const { return rationed_resets_; }  // resets that used up an allowance
  // Until this time, calls of this worker that the client has given up may have waited for their resets.
  TimePoint rationed_until(size_t worker) const { return resets_[worker].rationed_until; }
  uint64_t last_streams() const { return last_streams_; }  // connections that used all of their stream numbers
  // Number of early grants while another call of the connection waited for its grant.
  uint64_t early_beside() const { return early_beside_; }
  // Whether early bytes did not come in time, and their charge ended before they came.
  bool early_late() const { return early_late_; }
  // The outstanding bytes of slow workers that do not count, in units of the budget.
  int64_t uncounted_bytes() const { return uncounted_bytes_; }

 private:
  struct Stream {
    int64_t window_bytes = 6;    // as opened by the client, minus the received bytes
    int64_t early_bytes = 0;     // granted before the length prefix arrived, and not received
    bool ready = false;          // its first length prefix has arrived
    bool ready_in_turn = false;  // it became ready in this turn
    int64_t unsure_bytes = 0;    // granted in that turn, perhaps early, and not received
    int64_t prefix_bytes = 0;    // of length prefixes, received since the last grant
    std::string prefix;          // the received part of the next length prefix
    uint32_t rest_bytes = 0;     // of the current message
    bool stalled = false;
    bool late = false;       // its early bytes did not come in time, and are not charged
    bool unbounded = false;  // sent or granted bytes while unscheduled
    TimePoint since;         // the start of its stall timer
    std::string request;     // the received part of its message
    Question question;
    TimePoint opened_at;
    TimePoint ready_at;
    bool granted_in_turn = false;
    bool could_be = false;       // granted, at the end of the previous turn
    int64_t received_bytes = 0;  // without length prefixes
  };
  // Bytes that were granted in this turn. The block of a stream may be known later in the turn.
  struct Granted {
    ConnectionId connection = 0;
    uint32_t stream = 0;
    TurnGrant grant;
  };
  struct Connection {
    ConnectionId id = 0;
    size_t worker = 0;
    FrameReader sent;
    FrameReader received;
    absl::btree_map<uint32_t, Stream> streams;
  };
  struct Worker {
    int64_t charged_bytes = 0;   // without early bytes
    bool granted = false;        // in this turn
    bool delivered = false;      // in this turn
    int64_t share_bytes = 0;     // the largest share since the previous turn
    bool slow = false;           // now
    bool slow_for_long = false;  // since the previous turn
    bool was_slow = false;       // in this turn, or earlier while bytes from then may still arrive
  };
  struct Handshake {
    TimePoint since;
    int64_t cost_bytes = 0;
  };
  struct Draining {
    TimePoint until;
    int64_t bytes = 0;
    std::optional<size_t> worker = std::nullopt;  // empty for handshakes
    bool held = false;                            // it held more than early bytes and handshakes
    bool slow = false;                            // of a slow worker
  };
  // The times at which streams that were given up have drained.
  struct Drained {
    std::map<uint32_t, TimePoint> streams;
    TimePoint connection = TimePoint::max();
  };
  struct Resets {
    double left = 15;
    TimePoint since;
    TimePoint rationed_until;
  };

  void OnSent(Connection& connection, const FrameReader& frame, TimePoint now);
  void OnRequest(Stream& stream);
  void OnReceived(Connection& connection, const FrameReader& frame);
  void OnData(Stream& stream, absl::string_view data, TimePoint now);
  static int64_t TakeMessageBytes(Stream& stream, absl::string_view data, TimePoint now);
  void Grant(const Connection& connection, uint32_t id, Stream& stream, int64_t bytes, TimePoint now);
  void Drain(const Connection& connection, Stream& stream, TimePoint now);
  void EndStream(Connection& connection, uint32_t id);
  void CountEnded(const Connection& connection, uint32_t id, const Stream& stream);
  void CheckOrder(const std::vector<OpenResponse>& responses, bool granted, int64_t charged_bytes, TimePoint now);
  std::vector<OpenResponse> OpenResponses();
  std::vector<TurnGrant> TakeGrants();
  int64_t MostBytes(const Stream& stream) const;
  bool MayLeaveRoom(const OpenResponse& response, int64_t charged_bytes) const;
  FreeRoom::Turn RoomOf(const std::vector<OpenResponse>& responses, int64_t charged_bytes, TimePoint now);
  int64_t PartCost(int64_t bytes) const;
  bool CouldBeGranted(const Connection& connection, const Stream& stream) const;
  bool granting() const { return policy_ == SchedulePolicy::kGrants; }
  bool scheduled() const { return policy_ != SchedulePolicy::kUnscheduled; }
  int64_t HandshakeBytes(TimePoint now, bool began);
  void LookAt(size_t worker);
  void CheckShares();
  int64_t Grown(int64_t share_bytes) const;
  void TakeReset(size_t worker, uint32_t error, TimePoint now);
  void MarkStalled(Stream& stream, TimePoint now);
  int64_t Outstanding(const Stream& stream) const;
  int64_t Owed(const Stream& stream) const;
  int64_t EarlyCost(const Stream& stream) const;
  int64_t Charge(const Stream& stream) const;
  bool IsForgotten(const Stream& stream) const;
  bool Holds(const Stream& stream) const;
  TimePoint StreamChargedUntil(ConnectionId connection, uint32_t stream) const;
  int64_t Cost(int64_t bytes) const;

  const LinkProfile profile_;
  SchedulePolicy policy_;
  const int64_t budget_bytes_;
  const std::chrono::nanoseconds drain_time_;
  const std::chrono::nanoseconds stall_time_;
  LoadOf load_of_;
  int64_t uncounted_bytes_ = 0;
  bool drained_ = true;  // all bytes that may arrive fit the budget
  LateBlocks late_blocks_;
  SmallBlocks small_blocks_;
  const std::vector<double> class_weights_;  // empty: there is one class
  ClassShares class_shares_;
  FreeRoom free_room_;
  int64_t expected_bytes_;  // the most that the client may expect of one response
  WaitingRequests waiting_requests_;
  std::vector<Granted> grants_;              // in this turn
  std::map<uint64_t, int64_t> ended_bytes_;  // of each block, of streams that have ended
  std::deque<TimePoint> draining_headers_;   // until when the headers of streams that were given up may come
  bool large_headers_ = false;               // have come
  bool unscheduled_ = false;                 // at any time so far
  std::vector<Worker> workers_;
  std::map<ConnectionId, Handshake> handshakes_;
  bool handshake_began_ = false;  // in this turn
  uint64_t early_beside_ = 0;
  bool early_late_ = false;
  uint64_t early_hung_ = 0;
  absl::btree_map<ConnectionId, Connection> connections_;
  std::deque<Draining> draining_;
  std::map<ConnectionId, Drained> drained_streams_;
  std::vector<Resets> resets_;  // by worker
  bool granted_ = false;        // in this turn
  uint64_t rationed_resets_ = 0;
  uint64_t last_streams_ = 0;
  std::vector<std::string> breaches_;
};

}  // namespace sluice::testing
