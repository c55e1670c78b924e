#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sluice/link_schedule.h"

#include "absl/strings/string_view.h"

namespace sluice::testing {

// What the client lets come, checked against the budget by the HTTP/2 frames on its connections (RFC 9113, section 4.1)
// alone: a bookkeeping of its own that knows neither the schedule nor nghttp2. Where it cannot know a byte exactly
// (what of a window is room for a length prefix), it errs on the client's side. One a simulated world.
class WireOracle {
 public:
  // Of a schedule in rolling or grants, whose budget stays.
  WireOracle(const LinkSchedule::Options& schedule, int64_t budget_bytes, size_t workers);

  using ConnectionId = uint64_t;
  void Opened(ConnectionId connection, size_t worker);
  void Sent(ConnectionId connection, absl::string_view bytes, TimePoint now);  // by the client
  void Received(ConnectionId connection, absl::string_view bytes,
                TimePoint now);  // by the client, in the order of both
  void Closed(ConnectionId connection, TimePoint now);
  // The client's thread has done all that it does now: what it has granted has to fit.
  void EndTurn(TimePoint now);

  // What the schedule has charged to slow workers: beyond a third of the budget, or a packet, it may come as well.
  void SetSlowBytes(std::function<int64_t()> slow_bytes) { slow_bytes_ = std::move(slow_bytes); }

  // Breaches of: the budget, the third of it that early bytes may take, a window that its worker has exceeded, and the
  // allowance of resets.
  std::vector<std::string> TakeBreaches() { return std::exchange(breaches_, {}); }
  bool any_slow() const { return any_slow_; }  // a worker was slow, and may have had more than what counts
  uint64_t rationed_resets() const { return rationed_resets_; }  // that used an allowance up
  uint64_t last_streams() const { return last_streams_; }        // connections that used all of their stream numbers

 private:
  struct Stream {
    int64_t window_bytes = 6;  // as the client has opened it, less what has come
    int64_t early_bytes = 0;   // granted before the length prefix was here, and have not come
    bool came = false;         // any DATA
    std::string prefix;        // what is here of the next one
    uint32_t rest_bytes = 0;   // of the message that is coming
    bool stalled = false;
    TimePoint since;  // that its stall timer runs
  };
  // One direction of a connection, cut anywhere.
  struct Frames {
    size_t skip_bytes = 0;  // before the first frame
    std::array<uint8_t, 9> head{};
    size_t head_bytes = 0;
    size_t payload_bytes = 0;  // that are still to come
    std::string payload;       // of small frames
  };
  struct Connection {
    size_t worker = 0;
    Frames sent;
    Frames received;
    std::map<uint32_t, Stream> streams;
  };
  struct Draining {
    TimePoint until;
    int64_t bytes = 0;
  };
  struct Resets {
    double left = 15;
    TimePoint since;
  };

  template <class FrameEvent, class DataEvent>
  static void Read(Frames& frames, absl::string_view bytes, FrameEvent on_frame, DataEvent on_data);
  void OnSent(Connection& connection, const Frames& frame, TimePoint now);
  void OnReceived(Connection& connection, const Frames& frame);
  void OnData(Stream& stream, absl::string_view data, TimePoint now);
  static int64_t TakeMessageBytes(Stream& stream, absl::string_view data);
  void Grant(Stream& stream, int64_t bytes, TimePoint now);
  void Drain(Stream& stream, TimePoint now);
  void TakeReset(size_t worker, TimePoint now);
  void MarkStalled(Stream& stream, TimePoint now) const;
  int64_t Outstanding(const Stream& stream) const;
  int64_t EarlyCost(const Stream& stream) const;
  int64_t Cost(int64_t bytes) const;

  const LinkProfile profile_;
  const bool granting_;
  const int64_t budget_bytes_;
  const std::chrono::nanoseconds drain_time_;
  const std::chrono::nanoseconds stall_time_;
  std::function<int64_t()> slow_bytes_;
  int64_t uncounted_bytes_ = 0;
  bool any_slow_ = false;
  bool were_slow_ = false;  // workers, at the end of the last turn
  std::map<ConnectionId, Connection> connections_;
  std::deque<Draining> draining_;
  std::vector<Resets> resets_;  // by worker
  bool granted_ = false;        // in this turn
  uint64_t rationed_resets_ = 0;
  uint64_t last_streams_ = 0;
  std::vector<std::string> breaches_;
};

}  // namespace sluice::testing
