#include "lib/proxy/proxy_loop.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Time between asking clients to go elsewhere and refusing new calls: calls that were already sent arrive within it.
constexpr milliseconds kGoAwayDelay{500};
constexpr seconds kLookEvery{1};
// A client that reads has read something within this time. Within this time, LookAround has also flushed bytes that
// wait for the rest of their message.
constexpr seconds kStuckAfter{2};
static_assert(kStuckAfter > kLookEvery);
// A look takes about a microsecond. Ten thousand at once would hold up the bytes of all others for 10 ms.
constexpr size_t kLookAtOnce = 256;
constexpr size_t kMaxOpenBlocks = 4096;
// Resets that a client may send: hedged fan-outs of an application send many over one connection.
constexpr uint32_t kResetsPerSecond = 1000;
constexpr uint32_t kResetBurst = 10000;

CallOutcome OutcomeOf(const ProxyLoop::EndedCall& call) {
  switch (call.code) {
    case absl::StatusCode::kOk:
      return CallOutcome::kOk;
    case absl::StatusCode::kCancelled:
      return CallOutcome::kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return call.link_is_late ? CallOutcome::kExpired : CallOutcome::kRpcDeadline;
    case absl::StatusCode::kResourceExhausted:
      return call.expired ? CallOutcome::kExpired : CallOutcome::kRpcError;
    default:
      return CallOutcome::kRpcError;
  }
}

// The name is random, so that each process has its own. The executor draws it, so that simulations are reproducible to
// the byte.
std::string NewPseudonym(Executor& executor) {
  constexpr double kNumbers = uint64_t{1} << 48;
  return absl::StrCat("sluice-", absl::Hex(static_cast<uint64_t>(executor.Random() * kNumbers), absl::kZeroPad12));
}

}  // namespace

ProxyLoop::ProxyLoop(LinkLoop& link, ClientPolicies policies, std::shared_ptr<TlsContext> tls, ProxyOptions options,
                     ProxyMetrics& metrics)
    : link_(link),
      policies_(std::make_shared<const ClientPolicies>(std::move(policies))),
      options_(std::move(options)),
      metrics_(metrics),
      pseudonym_(NewPseudonym(link.executor())),
      targets_(link, std::move(tls)) {
  SetHeldBounds();
  LookAround();
}

ProxyLoop::~ProxyLoop() {
  on_drained_ = nullptr;
  Close(absl::UnavailableError("the proxy has stopped"));
  link_.timers().Clear(look_timer_);
  link_.timers().Clear(go_away_timer_);
}

void ProxyLoop::Accept(const ClientOrigin& origin, const AcceptedSocket& accept) {
  // Idle connections must not keep other clients out. If the bound was lowered, several end.
  while (!closing_ && connections_.size() >= options_.max_connections && !idle_.empty()) {
    metrics_.CountIdleEnd();
    idle_.front().Close(absl::UnavailableError("the connection was idle, and others need its room"));
  }
  if (closing_ || connections_.size() >= options_.max_connections) {
    metrics_.CountConnection(ProxyConnection::kRefused);
    if (!closing_) {
      Report({.client = origin.Name(),
              .why = absl::StrCat("limits.connections is ", options_.max_connections, ", and none of them is idle")});
    }
    return;  // the socket closes with `accept`
  }
  connections_.push_back(std::make_shared<ClientConnection>(*this, origin, accept));
  connections_.back()->set_place(std::prev(connections_.end()));
  OnIdle(*connections_.back());
  metrics_.SetConnections(connections_.size());
}

void ProxyLoop::Bury(ClientConnection& connection) {
  link_.AtEndOfTurn([buried = std::move(*connection.place())] {});
  connections_.erase(connection.place());
  metrics_.SetConnections(connections_.size());
  TellIfDrained();
}

void ProxyLoop::Close(const absl::Status& why) {
  closing_ = true;
  const auto connections = connections_;
  for (const auto& connection : connections) connection->Close(why);
}

void ProxyLoop::Drain(std::function<void()> on_drained) {
  closing_ = true;
  on_drained_ = std::move(on_drained);
  for (const auto& connection : connections_) connection->AnnounceGoAway();
  go_away_timer_ = link_.timers().Set(link_.now() + kGoAwayDelay, [this] {
    go_away_timer_ = TimerQueue::Id();
    const auto connections = connections_;
    for (const auto& connection : connections) connection->GoAway();
    TellIfDrained();
  });
}

void ProxyLoop::TellIfDrained() {
  if (on_drained_ == nullptr || !connections_.empty()) return;
  std::exchange(on_drained_, nullptr)();
}

void ProxyLoop::Reconfigure(ClientPolicies policies, ProxyOptions options) {
  SetPolicies(std::move(policies));
  options_ = std::move(options);
  SetHeldBounds();
  targets_.Clear();
}

void ProxyLoop::SetHeldBounds() {
  held_answers_.SetBound(options_.max_held_bytes, options_.max_calls);
  held_requests_.SetBound(options_.max_held_bytes, options_.max_calls);
}

void ProxyLoop::SetOwnAddresses(std::vector<std::string> addresses) {
  own_addresses_ = std::move(addresses);
  SetPolicies(*policies_);
}

void ProxyLoop::SetPolicies(ClientPolicies policies) {
  policies.SetOwnAddresses(own_addresses_);
  policies_ = std::make_shared<const ClientPolicies>(std::move(policies));
}

Http2Session::Options ProxyLoop::session_options() const {
  return {.side = Http2Session::Side::kServer,
          .max_header_list_bytes = options_.max_header_bytes,
          .max_concurrent_streams = options_.max_streams,
          // WantedBytes bounds the requested bytes.
          .max_unsent_bytes_per_stream = 1u << 30,
          .max_output_bytes = StreamSocket::kMaxBacklogBytes,
          .resets_per_second = kResetsPerSecond,
          .reset_burst = kResetBurst,
          .forgive_idle_resets = true};
}

// A late call, such as a retry, gets a block of its own if the other calls of its fan-out have ended.
absl::Status ProxyLoop::Submit(const MakeStream& make, const ForwardedHead& head, size_t traffic_class,
                               TimePoint deadline) {
  const auto known = head.block.empty() ? blocks_by_name_.end() : blocks_by_name_.find(head.block);
  if (known != blocks_by_name_.end()) {
    OpenBlock& block = *known->second;
    const BlockId id = block.id;
    if (--block.calls_left <= 0) {
      blocks_.erase(known->second);
      blocks_by_name_.erase(known);
    }
    absl::Status added = link_.Add(id, link_.Take(make()));
    if (!absl::IsNotFound(added)) return added;
  }
  BlockId id = 0;
  ScheduledStream* const calls[] = {&link_.Take(make())};
  // A block has one deadline, and the deadlines of its calls may differ. Clients cancel late calls, or LookAround ends
  // them.
  const bool goes_on = head.calls > 1 && !head.block.empty();
  absl::Status submitted = link_.Submit(calls, goes_on ? TimePoint::max() : deadline, id, traffic_class);
  if (!submitted.ok() || !goes_on || blocks_by_name_.contains(head.block)) {
    return submitted;
  }
  if (blocks_.size() >= kMaxOpenBlocks) {
    blocks_by_name_.erase(blocks_.front().name);
    blocks_.pop_front();
  }
  blocks_.push_back({.name = head.block, .id = id, .calls_left = head.calls - 1});
  blocks_by_name_[head.block] = std::prev(blocks_.end());
  return submitted;
}

// Requests do not wait for kStuckAfter: the bytes that clients send within that time have no bound. Responses that are
// granted before they are ready, or that arrive over an unscheduled link, were not requested. Therefore their total may
// exceed the bound before kStuckAfter has passed.
void ProxyLoop::LimitHeld() {
  if (!held_answers_.full() && held_requests_.bytes() <= held_requests_.max_bytes()) return;
  if (std::exchange(limit_queued_, true)) return;
  link_.AtEndOfTurn([this, alive = std::weak_ptr<const void>(alive_)] {
    if (alive.expired()) return;
    limit_queued_ = false;
    held_requests_.ReleaseAbove(held_requests_.max_bytes());
    if (!held_answers_.full()) return;
    held_answers_.ReleaseStuck(link_.now() - kStuckAfter);
    held_answers_.ReleaseAbove(2 * held_answers_.max_bytes());
  });
}

std::shared_ptr<const void> ProxyLoop::OnCallBegan() {
  metrics_.SetCalls(++calls_);
  return living_calls_;
}

void ProxyLoop::OnCallEnded(const EndedCall& call) {
  metrics_.SetCalls(--calls_);
  metrics_.CountCall(call.pattern, call.code);
  if (call.pattern.empty()) return;
  metrics_.ObserveCall(call.path, call.method_exists, absl::FromChrono(link_.now() - call.began));
  // Alert rules for a link use its request counters.
  const CallOutcome outcome = OutcomeOf(call);
  link_.metrics().CountCall(outcome);
  if (outcome == CallOutcome::kRpcDeadline) link_.metrics().CountTimeout(TimeoutKind::kRpcDeadline);
  // The stream has already counted a request that was not sent.
  if (outcome == CallOutcome::kExpired && call.sent) link_.metrics().CountTimeout(TimeoutKind::kQueueDeadline);
}

// Looks at every connection within kLookEvery, at those first that have waited for longest.
void ProxyLoop::LookAround() {
  const size_t turns = connections_.size() / kLookAtOnce + 1;
  look_timer_ = link_.timers().Set(link_.now() + std::chrono::nanoseconds(kLookEvery) / turns, [this, turns] {
    const size_t count = (connections_.size() + turns - 1) / turns;
    for (size_t i = 0; i < count && !connections_.empty(); ++i) {
      connections_.splice(connections_.end(), connections_, connections_.begin());
      const std::shared_ptr<ClientConnection> connection = connections_.back();
      connection->LookAround(link_.now());
    }
    if (++looks_ >= turns) {
      looks_ = 0;
      targets_.Sweep();
    }
    LookAround();
  });
}

}  // namespace sluice
