#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "sluice/schedule.h"

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/link/scheduled.h"
#include "lib/link/tunnel_metrics.h"
#include "lib/link/worker_table.h"
#include "lib/net/timer_queue.h"
#include "lib/scheduling/tunnel_turns.h"
#include "lib/tcp/tcp_socket.h"

namespace sluice {

class LinkLoop;

// The turns of one byte tunnel in the schedule of its link. The receive window of the tunnel's connection is the grant:
// while the tunnel has a turn its owner reads, which opens the window again. There is one for each scheduled tunnel.
// Used on the link's thread only.
//
// The window is small, so that many tunnels have a turn at the same time: two packets, or a 24th of the budget. It
// grows up to a third of the budget while the tunnel's turns follow each other without a wait, so that one tunnel alone
// is fast.
class ScheduledTunnel final
    : private Scheduled,
      public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  using List = boost::intrusive::list<ScheduledTunnel, boost::intrusive::constant_time_size<false>>;

  // The owner, which has the connection.
  struct Owner {
    std::function<void()> on_turn;                  // a turn begins; it is not called within OnResponse
    std::function<std::optional<TcpSocket>()> tcp;  // describes the connection, if it is TCP
    std::function<void(int bytes)> set_window;      // as StreamSocket::SetReceiveWindow
    // The schedule has refused a turn, so the tunnel has stopped and passes no more bytes: the owner ends the
    // connection, with this reason. It may be called within each event below.
    std::function<void(const absl::Status& why)> on_refused;
  };

  // Whether the schedule has turns for tunnels: with grants and rolling.
  static bool Possible(const LinkLoop& loop);
  // The receive buffer of a new connection, as in Executor::ConnectOptions.
  static int ReceiveBufferBytes(const LinkLoop& loop);

  // `loop` and `metrics` must outlive it. Its owner destroys it at the end of a turn of the loop, after Stop.
  ScheduledTunnel(LinkLoop& loop, TunnelMetrics& metrics, size_t traffic_class, Owner owner);
  ~ScheduledTunnel() override;
  ScheduledTunnel(const ScheduledTunnel&) = delete;
  ScheduledTunnel& operator=(const ScheduledTunnel&) = delete;

  // As in TunnelTurns, with the bytes of the client or of the worker. The owner then asks passes_requests() and reads()
  // again.
  void OnRequest(absl::string_view bytes);
  void OnResponse(absl::string_view bytes);
  void OnClientStuck(bool stuck);
  void OnWorkerEnded();  // all of its bytes have come; as Stop
  bool passes_requests() const { return turns_.passes_requests(); }
  bool reads() const { return turns_.reads(); }
  void Stop();  // the connection is over; the owner gets no event any more
  // For a look at the connections of the link (WorkerTable). Returns false, and appends nothing, if the tunnel expects
  // nothing and nothing has come since the last look.
  bool AppendTcp(std::vector<WorkerTable::Socket>& sockets);

 private:
  // Scheduled.
  void Send(int64_t) override {}
  void Grant(int64_t bytes) override;
  void EndUnsent(absl::Status) override {}
  void Abort() override {}

  void ShowPhase();
  void Do(TunnelTurns::Step step);
  void Ask();
  int64_t NarrowWindow(const std::optional<TcpSocket>& tcp, int64_t plan_bytes) const;
  int64_t WiderWindow(const std::optional<TcpSocket>& tcp, const ScheduleState& state) const;
  bool IsControl(absl::string_view bytes) const;
  bool Ends(int64_t bytes);
  bool WindowIsBroken(const std::optional<TcpSocket>& tcp) const;
  void End(CallEnd end);
  void EndFilling();
  void WatchForSilence();
  bool Expects() const;
  WorkerLoad Load() const;
  void OnHeard(const TunnelTurns::Piece& piece);

  LinkLoop& loop_;
  TunnelMetrics& metrics_;
  const size_t traffic_class_;
  const Owner owner_;
  TunnelTurns turns_;
  TunnelMetrics::Share share_;  // in the metrics
  bool stopped_ = false;
  bool began_ = false;             // the client has sent bytes
  bool tls_ = false;               // they are TLS
  bool asked_ = false;             // the schedule knows a turn, which waits or has begun
  bool in_response_ = false;       // within OnResponse
  int64_t window_bytes_ = 0;       // the window of the last turn that the tunnel asked for
  bool prompt_ = false;            // that turn began at once
  int64_t full_packet_bytes_ = 1;  // payload of a full packet
  int64_t packet_bytes_ = 0;       // received since the last packet that was not full
  // The tunnel asks again after this many bytes of a turn, and a response may pause for this long.
  int64_t part_bytes_ = 0;
  std::chrono::nanoseconds silence_{0};
  // The turn before, whose window fills up while the tunnel waits for the next.
  std::optional<CallId> filling_;
  TimerQueue::Id filling_timer_;
  TimerQueue::Id timer_;  // set during a turn
  TimePoint timer_due_;
  // For looks.
  bool has_news_ = false;        // bytes have come since the last look
  bool has_rest_ = false;        // the last packet was full, so more of its response follows
  int64_t begun_turns_ = 0;      // including the current one
  int64_t pauses_ = 0;           // silences within a response that were as long as a retransmission timeout
  TimePoint heard_at_;           // the last bytes of the worker, or the beginning of the turn
  WorkerTable::Tunnel watched_;  // kept from one look to the next
};

}  // namespace sluice
