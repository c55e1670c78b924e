#include "lib/link/scheduled_tunnel.h"

#include <algorithm>
#include <utility>

#include "sluice/plan.h"
#include "sluice/schedule.h"

#include "lib/link/link_loop.h"
#include "lib/net/socket_address.h"
#include "lib/scheduling/budget.h"
#include "lib/tcp/tcp_connection.h"

namespace sluice {
namespace {

using std::chrono::nanoseconds;

// A full buffer drains once, and again after a loss that TCP repairs at once. Half of that breaks responses of 200 KB
// apart.
constexpr int kSilentDrainTimes = 2;
constexpr nanoseconds kLeastSilence = std::chrono::milliseconds(2);

// A window below one packet makes the sender wait for its probe timer; with two it sends while the other is read.
constexpr int64_t kTunnelsAtATime = 24;
// Like a response that is granted in parts, a tunnel uses a third of the budget in one turn.
constexpr int64_t kTurnsOfBudget = 3;
constexpr int64_t kMostFirstWindowBytes = 32 << 10;
// A connection that begins with a small buffer gets no window scale, so its window is at most this (RFC 7323), or
// twice. One that begins with the kernel's buffer advertises as much at first.
constexpr int64_t kUnscaledWindowBytes = 64 << 10;
// A window may grow after so many times its bytes, even if a third of a large budget has not come.
constexpr int64_t kPartWindows = 16;
constexpr int64_t kMostWindowBytes = 4 << 20;

// A tunnel that expects bytes is looked at for this long after the last ones: the first retransmission timeout ends
// after 200 ms, and a turn much sooner.
constexpr std::chrono::milliseconds kWatched(500);

constexpr char kTlsRecord = 0x16;  // the first byte of a TLS connection (RFC 8446, section 5.1)
// A TLS record of HTTP/2's PING takes 39 bytes, and of two WINDOW_UPDATEs 48. A request takes more.
constexpr size_t kMostControlBytes = 48;

int64_t LeastPackets(int64_t plan_bytes, int64_t packet_bytes) {
  const int64_t packets = std::min(plan_bytes / kTunnelsAtATime, kMostFirstWindowBytes) / packet_bytes;
  return std::max(packets, kTunnelWindowPackets);
}

// The packets of the other end have at most half of the largest window that it has seen: on loopback, more than a
// window that is to be narrow again, and it would wait for its probe timer.
int64_t LeastWindowForPackets(const std::optional<TcpSocket>& tcp) {
  return tcp.has_value() ? kTunnelWindowPackets * tcp->info.recent_packet_bytes : 0;
}

}  // namespace

bool ScheduledTunnel::Possible(const LinkLoop& loop) {
  const SchedulePolicy policy = loop.schedule().options().policy;
  return policy == SchedulePolicy::kGrants || policy == SchedulePolicy::kRolling;
}

int ScheduledTunnel::ReceiveBufferBytes(const LinkLoop& loop) {
  const int64_t packet_bytes = loop.schedule().options().profile.packet_payload_bytes;
  const int64_t plan_bytes = loop.schedule().State().plan_bytes;
  if (plan_bytes / kTunnelsAtATime >= kUnscaledWindowBytes) return 0;
  return ReceiveBufferFor(static_cast<int>(packet_bytes * LeastPackets(plan_bytes, packet_bytes)));
}

ScheduledTunnel::ScheduledTunnel(LinkLoop& loop, TunnelMetrics& metrics, size_t traffic_class, Owner owner)
    : loop_(loop), metrics_(metrics), traffic_class_(traffic_class), owner_(std::move(owner)) {
  ShowPhase();
}

ScheduledTunnel::~ScheduledTunnel() {
  unlink();  // the connection may be gone
  Stop();
}

void ScheduledTunnel::Stop() {
  if (std::exchange(stopped_, true)) return;
  std::vector<WorkerTable::Socket> last;
  if (is_linked() && AppendTcp(last)) loop_.worker_table().LookAt(loop_.now(), last);
  unlink();
  loop_.timers().Clear(timer_);
  EndFilling();
  if (asked_) End(CallEnd::kAborted);
  ShowPhase();
}

void ScheduledTunnel::OnWorkerEnded() {
  if (!stopped_ && turns_.phase() == TunnelTurns::Phase::kTurn) End(CallEnd::kArrived);
  Stop();
}

// The first bytes show the protocol.
void ScheduledTunnel::OnRequest(absl::string_view bytes) {
  if (!std::exchange(began_, true)) tls_ = !bytes.empty() && bytes[0] == kTlsRecord;
  const bool within_turn = turns_.phase() == TunnelTurns::Phase::kTurn;
  Do(turns_.OnRequest(loop_.now(), static_cast<int64_t>(bytes.size()), /*wants_response=*/!IsControl(bytes)));
  if (within_turn && WindowIsBroken(owner_.tcp())) {
    owner_.set_window(static_cast<int>(window_bytes_ + kTunnelWindowPackets * full_packet_bytes_));
  }
  WatchForSilence();
}

void ScheduledTunnel::OnResponse(absl::string_view received) {
  const auto bytes = static_cast<int64_t>(received.size());
  metrics_.AddReceived(bytes);
  in_response_ = true;
  const bool in_turn = turns_.phase() == TunnelTurns::Phase::kTurn;
  const int64_t surprises = turns_.surprises();
  if (in_turn) loop_.schedule_run().OnReceived(id(), bytes);
  const TunnelTurns::Piece piece{.bytes = bytes, .is_response = !IsControl(received), .ends = Ends(bytes)};
  OnHeard(piece);
  Do(turns_.OnResponse(loop_.now(), piece, part_bytes_));
  if (turns_.surprises() > surprises) metrics_.CountSurprise();
  WatchForSilence();
  in_response_ = false;
}

bool ScheduledTunnel::IsControl(absl::string_view bytes) const {
  return tls_ && bytes.size() <= kMostControlBytes;
}

// A sender with more bytes sends full packets.
bool ScheduledTunnel::Ends(int64_t bytes) {
  packet_bytes_ += bytes;
  const bool ends = packet_bytes_ % full_packet_bytes_ != 0;
  if (ends) packet_bytes_ = 0;
  return ends;
}

// The kernel moves a window by whole packets. Small packets may leave less than one, which then does not move any more,
// and the sender waits for its probe timer, 200 ms, before each further piece. A window that is wider by two packets
// moves.
bool ScheduledTunnel::WindowIsBroken(const std::optional<TcpSocket>& tcp) const {
  return tcp.has_value() && tcp->info.receive_window_bytes.value_or(full_packet_bytes_) < full_packet_bytes_;
}

void ScheduledTunnel::OnClientStuck(bool stuck) {
  Do(turns_.OnClientStuck(stuck));
  WatchForSilence();
}

void ScheduledTunnel::ShowPhase() {
  TunnelMetrics::Share share;
  if (!stopped_) share.phase = turns_.phase();
  if (share.phase == TunnelTurns::Phase::kTurn) share.window_bytes = window_bytes_;
  metrics_.Change(share_, share);
  share_ = share;
}

void ScheduledTunnel::Do(TunnelTurns::Step step) {
  ShowPhase();
  switch (step) {
    case TunnelTurns::Step::kNothing:
      return;
    case TunnelTurns::Step::kAsk:
      if (asked_) metrics_.CountTurn(TunnelTurnEnd::kPart);
      return Ask();
    case TunnelTurns::Step::kEnd:
      metrics_.CountTurn(turns_.given_up() ? TunnelTurnEnd::kUnanswered : TunnelTurnEnd::kSilence);
      return End(CallEnd::kArrived);
    case TunnelTurns::Step::kAbandon:
      metrics_.CountTurn(TunnelTurnEnd::kClient);
      return End(CallEnd::kAborted);
  }
}

// If a turn ends here, the next one may begin before that, and then has its window.
void ScheduledTunnel::Ask() {
  const std::optional<CallId> before = asked_ ? std::optional(id()) : std::nullopt;
  const std::optional<TcpSocket> tcp = owner_.tcp();
  const ScheduleState state = loop_.schedule().State();
  const int64_t plan_bytes = state.plan_bytes;
  // With unscheduled, which has no budget, the buffer counts.
  const int64_t drained_bytes = Possible(loop_) ? plan_bytes : 0;
  silence_ = std::max(kLeastSilence, kSilentDrainTimes * DrainTime(loop_.schedule().options().profile, drained_bytes));
  // On loopback a packet has 64 KB, and is as large as the window.
  full_packet_bytes_ = loop_.schedule().options().profile.packet_payload_bytes;
  if (tcp.has_value() && tcp->info.packet_payload_bytes > 0) {
    full_packet_bytes_ = std::min<int64_t>(full_packet_bytes_, tcp->info.packet_payload_bytes);
  }
  const int64_t window_bytes = before.has_value() && prompt_ ? WiderWindow(tcp, state) : NarrowWindow(tcp, plan_bytes);
  // The kernel cannot take back what it has advertised before.
  const int64_t advertised_bytes = tcp.has_value() ? tcp->info.receive_window_bytes.value_or(0) : 0;
  window_bytes_ = window_bytes + (WindowIsBroken(tcp) ? kTunnelWindowPackets * full_packet_bytes_ : 0);
  part_bytes_ = std::min(plan_bytes / kTurnsOfBudget, kPartWindows * window_bytes_);
  const int64_t charged_bytes = std::max(window_bytes_, advertised_bytes);
  const int64_t expected_bytes = std::min(turns_.response_bytes(), kMaxResponseBytes);
  const CallRequest request{
      .response_bytes = std::max(charged_bytes, expected_bytes), .tag = tag(), .window_bytes = charged_bytes};
  BlockId block = 0;
  asked_ = true;
  const absl::Status submitted = loop_.schedule_run().Submit({&request, 1}, TimePoint::max(), block, traffic_class_);
  if (!submitted.ok()) {
    asked_ = before.has_value();
    Stop();
    return owner_.on_refused(submitted);
  }
  prompt_ = turns_.phase() == TunnelTurns::Phase::kTurn;
  if (!before.has_value()) return;
  if (prompt_) return loop_.schedule_run().OnFinished(*before, CallEnd::kArrived);
  filling_ = before;
  filling_timer_ = loop_.timers().Set(loop_.now() + silence_, [this] { EndFilling(); });
}

void ScheduledTunnel::EndFilling() {
  loop_.timers().Clear(filling_timer_);
  const std::optional<CallId> filling = std::exchange(filling_, std::nullopt);
  if (filling.has_value()) loop_.schedule_run().OnFinished(*filling, CallEnd::kArrived);
}

// In full packets: a sender fills the rest of a window with a small one, which would look like the end of a response.
int64_t ScheduledTunnel::NarrowWindow(const std::optional<TcpSocket>& tcp, int64_t plan_bytes) const {
  const bool thinks = turns_.last_thinking() > silence_;
  const bool fills_packets = tcp.has_value() && tcp->info.packet_payload_bytes <= full_packet_bytes_;
  // A window of one packet does not move before it is empty, so no wider one may leave less than a packet.
  const bool whole = fills_packets && tcp->info.receive_window_bytes.value_or(0) % full_packet_bytes_ == 0;
  const int64_t least_bytes = full_packet_bytes_ * (thinks && whole ? 1 : LeastPackets(plan_bytes, full_packet_bytes_));
  return fills_packets ? least_bytes : std::max(least_bytes, LeastWindowForPackets(tcp));
}

int64_t ScheduledTunnel::WiderWindow(const std::optional<TcpSocket>& tcp, const ScheduleState& state) const {
  const int64_t most_bytes = std::min(state.plan_bytes / kTurnsOfBudget, kMostWindowBytes);
  const int64_t wider_bytes = std::max(2 * window_bytes_, LeastWindowForPackets(tcp));
  const bool idle = state.in_flight_bytes + wider_bytes - window_bytes_ <= state.plan_bytes / 2;
  return tcp.has_value() && wider_bytes <= most_bytes && idle ? wider_bytes : window_bytes_;
}

void ScheduledTunnel::Grant(int64_t) {
  if (stopped_) return;
  EndFilling();
  const TunnelTurns::Step step = turns_.OnGranted(loop_.now());
  Do(step);
  if (step != TunnelTurns::Step::kNothing) return;
  ++begun_turns_;
  heard_at_ = loop_.now();
  if (!is_linked()) loop_.workers().Watch(*this);
  owner_.set_window(static_cast<int>(window_bytes_));
  WatchForSilence();
  if (!in_response_) owner_.on_turn();
}

void ScheduledTunnel::End(CallEnd end) {
  asked_ = false;
  loop_.schedule_run().OnFinished(id(), end);
}

bool ScheduledTunnel::Expects() const {
  return turns_.reads() && (!turns_.answered() || has_rest_);
}

// A tunnel is one worker's load. Its turns are numbered as responses.
WorkerLoad ScheduledTunnel::Load() const {
  const int64_t out = Expects() ? 1 : 0;
  return {.out_calls = out,
          .owing_calls = turns_.answered() ? out : 0,
          .ended_calls = begun_turns_ - out,
          .owed_since = heard_at_,
          .pauses = pauses_};
}

// Counts a pause as Outstanding does for calls.
void ScheduledTunnel::OnHeard(const TunnelTurns::Piece& piece) {
  const absl::Duration rtt = loop_.schedule().options().profile.propagation_rtt;
  const nanoseconds pause = absl::ToChronoNanoseconds(absl::FromChrono(WorkerLoad::kPause) + rtt);
  if (Load().owing_calls > 0 && loop_.now() - heard_at_ >= pause) ++pauses_;
  if (piece.is_response) has_rest_ = begun_turns_ > 0 && !piece.ends;
  heard_at_ = loop_.now();
  has_news_ = true;
  if (!stopped_ && !is_linked()) loop_.workers().Watch(*this);
}

bool ScheduledTunnel::AppendTcp(std::vector<WorkerTable::Socket>& sockets) {
  const bool in_turn = turns_.phase() == TunnelTurns::Phase::kTurn;
  const bool waits = Expects() && loop_.now() - heard_at_ < kWatched;
  if (!std::exchange(has_news_, false) && !in_turn && !waits) return false;
  std::optional<TcpSocket> tcp = owner_.tcp();
  if (!tcp.has_value()) return true;
  // A tunnel does not make its worker wanted.
  const size_t worker = loop_.worker_table().Add(FormatSocketAddress(tcp->remote));
  const std::optional<size_t> forgotten = loop_.worker_table().Remove(worker);
  if (forgotten.has_value()) loop_.schedule_run().ForgetWorker(WorkerTable::ScheduleId(*forgotten));
  sockets.push_back({worker, *std::move(tcp), Load(), &watched_});
  return true;
}

// The timer is set once for many responses, and looks again when it is due: setting it is expensive.
void ScheduledTunnel::WatchForSilence() {
  const TimePoint due = stopped_ ? TimePoint::max() : turns_.Due(silence_);
  if (due == TimePoint::max()) return loop_.timers().Clear(timer_);
  if (timer_ != TimerQueue::Id() && timer_due_ <= due) return;
  loop_.timers().Clear(timer_);
  timer_due_ = due;
  timer_ = loop_.timers().Set(due, [this] {
    timer_ = TimerQueue::Id();
    Do(turns_.OnTimer(loop_.now(), silence_));
    WatchForSilence();
  });
}

}  // namespace sluice
