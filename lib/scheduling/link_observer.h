#pragma once

#include <chrono>
#include <cstdint>

#include <boost/intrusive/list.hpp>

#include "sluice/link_profile.h"
#include "sluice/time_point.h"

#include "absl/types/span.h"
#include "lib/scheduling/free_time.h"

namespace sluice {

// What a link without a schedule has done since the start, and what a schedule would have changed.
struct LinkObservation {
  int64_t responses = 0;       // messages that came whole
  int64_t response_bytes = 0;  // of these messages
  // Responses that the schedule would have held, and their bytes that did not fit the buffer of the port.
  int64_t held_responses = 0;
  int64_t held_bytes = 0;
  // Responses that waited for a retransmission timeout while more bytes were on their way than the buffer takes.
  int64_t lost_responses = 0;
  std::chrono::nanoseconds busy_time{0};  // a response was on its way
  std::chrono::nanoseconds lost_time{0};  // the part of busy_time that the schedule would have saved
};

// One response on its way, or one message of a stream. Kept by LinkObserver; the owner keeps its address.
struct ObservedResponse : boost::intrusive::list_base_hook<> {
  bool observed() const { return is_linked(); }

  uint32_t worker = 0;
  bool held = false;
  bool ready = false;   // the length prefix has arrived
  bool silent = false;  // TCP has seen that the network lost its packets, since the last bytes
  bool timed_out = false;
  TimePoint began;
  TimePoint heard;  // the last bytes, or `began`
  TimePoint ready_at;
  double carried_before_ns = 0;        // LinkObserver::carried_ns_ when it began
  std::chrono::nanoseconds lost{0};    // waits for packets that were lost
  std::chrono::nanoseconds unsure{0};  // a wait before the first bytes that may have been one
  int64_t bytes = 0;
  int64_t first_bytes = 0;  // that came with the prefix, or less than a round trip after it
};

// Watches a link without a schedule, and predicts what a schedule would save: events with their time go in, counts come
// out. It holds nothing back. There is one for each schedule. Not thread-safe. Times must never decrease.
//
// The schedule keeps the bytes on their way within the buffer, so what it would have held is what exceeds the buffer.
// Workers that do not respond at the same time share the buffer: the capacity of the link during the spread of their
// times counts in addition. The time in which the link carries the bytes of others is not theirs: responses that wait
// in the port for each other would look like workers that take their turns.
//
// A response is *lost* if it waited for a retransmission timeout and the bytes exceeded the buffer when the wait began.
// Later than its first bytes, such a wait is certainly a timeout, because the worker owes the bytes. Before them the
// worker may think. The wait is then a timeout if TCP says so (OnSilence), or if one packet comes first and the rest a
// round trip later: a timeout reduces the window of a sender to one packet, and thinking does not.
//
// TCP repairs other losses without a timeout: it probes the tail, or repeats one packet and waits for its
// acknowledgement. Such a wait of a ready response is time that the schedule would have saved, too, but the response
// does not count as lost. The port does not explain the wait, because a full buffer drains earlier.
//
// The time that a schedule saves follows from a second, imagined link. It carries each response at the rate C, in the
// free time from the moment on when the response was ready, or would have been without the wait. A response without a
// lost wait takes as long as it took. Then the time during which responses were on their way, and no response of the
// imagined link was, is lost time.
class LinkObserver {
 public:
  explicit LinkObserver(const LinkProfile& profile);

  void SetProfile(const LinkProfile& profile);

  // A response may come from now on: its request was sent, or the length prefix of a further message has arrived.
  // `in_flight_bytes` is the cost of all bytes on their way, of which this response is `cost_bytes`.
  void OnBegin(TimePoint now, ObservedResponse& response, uint32_t worker, int64_t cost_bytes, int64_t in_flight_bytes);
  // Its length prefix has arrived, and it costs `more_bytes` more than was expected.
  void OnReady(TimePoint now, ObservedResponse& response, int64_t more_bytes, int64_t in_flight_bytes);
  void OnReceived(TimePoint now, ObservedResponse& response, int64_t bytes, int64_t in_flight_bytes);
  // All of it has come, or its call has ended. Ignored if it was not observed.
  void OnEnd(TimePoint now, ObservedResponse& response, int64_t in_flight_bytes);
  // TCP has seen that packets of these workers are lost: nothing comes and nothing is acknowledged, or packets came
  // behind a hole. In any order.
  void OnSilence(absl::Span<const uint32_t> workers);
  // Forgets the responses on their way: a schedule holds them from now on.
  void Stop(TimePoint now);

  // lost_time is the time until the oldest response on its way began.
  const LinkObservation& observation() const { return seen_; }

 private:
  // The median of the values that were observed, and of their distances from it. Medians, because the values of lost
  // responses are far away.
  struct Spread {
    double median_ns = 0;
    double distance_ns = 0;
    void Observe(double value_ns);
  };

  void Advance(TimePoint now);
  void SetLevel(TimePoint now, int64_t in_flight_bytes);
  void CountHeld(ObservedResponse& response, int64_t more_bytes, int64_t in_flight_bytes);
  void Hear(TimePoint now, ObservedResponse& response);
  void Settle(TimePoint now);
  int64_t RoomBytes() const;
  std::chrono::nanoseconds TypicalReady() const;

  double bytes_per_ns_ = 0;
  int64_t buffer_bytes_ = 0;
  std::chrono::nanoseconds alone_{0};        // a packet without another one for this long was sent alone
  std::chrono::nanoseconds repair_time_{0};  // the shortest wait of a ready response that shows a loss
  LinkProfile profile_;
  // In the order in which they began.
  boost::intrusive::list<ObservedResponse, boost::intrusive::constant_time_size<false>> responses_;
  TimePoint now_;
  bool above_ = false;     // more bytes are on their way than have room
  TimePoint above_until_;  // the last moment with more
  Spread ready_;           // the times that workers take, without those in which the link carried other bytes
  double carried_ns_ = 0;  // the time that the bytes since the start took on the link
  FreeTime uncovered_;     // busy time during which the imagined link had no response on its way
  FreeTime link_;          // free time of the imagined link
  LinkObservation seen_;
};

}  // namespace sluice
