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

#include "absl/strings/string_view.h"
#include "lib/scheduling/link_schedule.h"
#include "tests/simulation/frame_reader.h"

namespace sluice::testing {

// What the client lets come, checked against the budget by the HTTP/2 frames on its connections (RFC 9113, section 4.1)
// alone: a bookkeeping of its own without the schedule and nghttp2. Only which workers are slow, and their shares, come
// from the schedule. If it cannot count a byte exactly (a part of each window is room for a length prefix), it errs on
// the client's side. One for each simulated world.
class WireOracle {
 public:
  // Of a schedule in rolling or grants, whose budget stays.
  WireOracle(const ScheduleOptions& schedule, int64_t budget_bytes, size_t workers);

  using ConnectionId = uint64_t;
  void Opened(ConnectionId connection, size_t worker);
  void Sent(ConnectionId connection, absl::string_view bytes, TimePoint now);  // by the client
  void Received(ConnectionId connection, absl::string_view bytes,
                TimePoint now);  // by the client, in the order of both
  void Closed(ConnectionId connection, TimePoint now);
  // Until when the budget is charged for DATA of these streams that has not come, as far as that is decided now:
  // TimePoint::max() before the client gives one of them up, a time in the past after a stall.
  TimePoint ChargedUntil(ConnectionId connection, const std::vector<uint32_t>& streams) const;
  // The client's thread has done all that it does now: what it has granted has to fit.
  void EndTurn(TimePoint now);

  // A host was sent a SYN, or the handshake of TLS begins; `bytes` come of it through the port. It ends with what
  // follows, or because the client gives it up.
  enum class HandshakeEnd { kArrived, kGivenUp };
  void HandshakeBegins(ConnectionId connection, int64_t bytes, TimePoint now);
  void HandshakeEnds(ConnectionId connection, HandshakeEnd end, TimePoint now);

  // What the schedule takes a worker for: slow or not, and its share. What slow workers have outstanding beyond a third
  // of the budget, or a packet, may come as well.
  using LoadOf = std::function<WorkerLoad(size_t worker)>;
  void SetLoadOf(LoadOf load_of) { load_of_ = std::move(load_of); }

  // Breaches of: the budget, the third of it that early bytes may take, the third of it that handshakes may take, twice
  // the share that a slow worker may have outstanding, a window that its worker has exceeded, and the allowance of
  // resets.
  std::vector<std::string> TakeBreaches() { return std::exchange(breaches_, {}); }
  uint64_t rationed_resets() const { return rationed_resets_; }  // that used an allowance up
  // Calls of this worker that the client had given up may have waited for their resets until then.
  TimePoint rationed_until(size_t worker) const { return resets_[worker].rationed_until; }
  uint64_t last_streams() const { return last_streams_; }  // connections that used all of their stream numbers
  // Grants of early bytes while another call of the connection waited for its grant.
  uint64_t early_beside() const { return early_beside_; }
  // What slow workers have outstanding beyond what counts, in units of the budget.
  int64_t uncounted_bytes() const { return uncounted_bytes_; }

 private:
  struct Stream {
    int64_t window_bytes = 6;    // as the client has opened it, less what has come
    int64_t early_bytes = 0;     // granted before the length prefix was here, and have not come
    bool ready = false;          // its first length prefix is here
    bool ready_in_turn = false;  // that came in this turn
    int64_t unsure_bytes = 0;    // granted in that turn, perhaps early, and have not come
    int64_t prefix_bytes = 0;    // of length prefixes, that have come since the last grant
    std::string prefix;          // what is here of the next one
    uint32_t rest_bytes = 0;     // of the message that is coming
    bool stalled = false;
    TimePoint since;  // that its stall timer runs
  };
  struct Connection {
    ConnectionId id = 0;
    size_t worker = 0;
    FrameReader sent;
    FrameReader received;
    std::map<uint32_t, Stream> streams;
  };
  struct Worker {
    int64_t charged_bytes = 0;   // without early ones
    bool granted = false;        // in this turn
    bool delivered = false;      // in this turn
    int64_t share_bytes = 0;     // the largest one since the turn before
    bool slow = false;           // now
    bool slow_for_long = false;  // since the turn before
    bool was_slow = false;       // in this turn, or before while its bytes may still come
  };
  struct Handshake {
    TimePoint since;
    int64_t cost_bytes = 0;
  };
  struct Draining {
    TimePoint until;
    int64_t bytes = 0;
    std::optional<size_t> worker = std::nullopt;  // nothing for handshakes
    bool held = false;                            // before, more than early bytes and handshakes
    bool slow = false;                            // of a slow worker
  };
  // When what was given up has drained.
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
  void OnReceived(Connection& connection, const FrameReader& frame);
  void OnData(Stream& stream, absl::string_view data, TimePoint now);
  static int64_t TakeMessageBytes(Stream& stream, absl::string_view data);
  void Grant(const Connection& connection, Stream& stream, int64_t bytes, TimePoint now);
  void Drain(const Connection& connection, Stream& stream, TimePoint now);
  int64_t HandshakeBytes(TimePoint now, bool began);
  void LookAt(size_t worker);
  void CheckShares();
  int64_t Grown(int64_t share_bytes) const;
  void TakeReset(size_t worker, TimePoint now);
  void MarkStalled(Stream& stream, TimePoint now) const;
  int64_t Outstanding(const Stream& stream) const;
  int64_t EarlyCost(const Stream& stream) const;
  int64_t Charge(const Stream& stream) const;
  bool IsForgotten(const Stream& stream) const;
  bool Holds(const Stream& stream) const;
  TimePoint StreamChargedUntil(ConnectionId connection, uint32_t stream) const;
  int64_t Cost(int64_t bytes) const;

  const LinkProfile profile_;
  const bool granting_;
  const int64_t budget_bytes_;
  const std::chrono::nanoseconds drain_time_;
  const std::chrono::nanoseconds stall_time_;
  LoadOf load_of_;
  int64_t uncounted_bytes_ = 0;
  bool drained_ = true;  // all that may come fits the budget
  std::vector<Worker> workers_;
  std::map<ConnectionId, Handshake> handshakes_;
  bool handshake_began_ = false;  // in this turn
  uint64_t early_beside_ = 0;
  std::map<ConnectionId, Connection> connections_;
  std::deque<Draining> draining_;
  std::map<ConnectionId, Drained> drained_streams_;
  std::vector<Resets> resets_;  // by worker
  bool granted_ = false;        // in this turn
  uint64_t rationed_resets_ = 0;
  uint64_t last_streams_ = 0;
  std::vector<std::string> breaches_;
};

}  // namespace sluice::testing
