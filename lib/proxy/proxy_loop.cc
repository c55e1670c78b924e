#include "lib/proxy/proxy_loop.h"

#include <algorithm>
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
// Clients that are not known, at each listener.
constexpr size_t kConnectionsPerOpening = 16;
constexpr size_t kMinOpenings = 16;
constexpr size_t kMaxOpenings = 1024;
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

AccessRecord RecordOf(const ProxyLoop::EndedCall& call, LinkLoop& link) {
  const TimePoint now = link.now();
  const auto& classes = link.schedule().options().classes;
  AccessRecord record{.group = call.group,
                      .method = call.path,
                      .worker = call.worker,
                      .pattern = call.pattern,
                      .took = absl::FromChrono(now - call.began),
                      .response_bytes = call.response_bytes,
                      .outcome = call.code,
                      .limit = call.limit,
                      .traceparent = call.traceparent};
  if (call.traffic_class < classes.size()) record.traffic_class = classes[call.traffic_class].name;
  if (call.sent_at != TimePoint::max()) {
    record.waited = absl::FromChrono(call.sent_at - call.began);
    record.granted = absl::FromChrono(call.granted);
  }
  if (call.ready_at != TimePoint::max()) {
    record.ready = absl::FromChrono(call.ready_at - call.sent_at);
    record.received = absl::FromChrono(now - call.ready_at);
  }
  return record;
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
      groups_(metrics),
      targets_(link, std::move(tls), groups_) {
  groups_.AddHeld("held_responses", held_answers_);
  groups_.AddHeld("held_requests", held_requests_);
  SetBounds();
  LookAround();
}

ProxyLoop::~ProxyLoop() {
  on_drained_ = nullptr;
  Close(absl::UnavailableError("the proxy has stopped"));
  link_.timers().Clear(look_timer_);
  link_.timers().Clear(go_away_timer_);
}

void ProxyLoop::Accept(const ClientOrigin& origin, const AcceptedSocket& accept) {
  if (closing_) {
    metrics_.CountConnection(ProxyConnection::kRefused);
    return;  // the socket closes with `accept`
  }
  const auto connection = std::make_shared<ClientConnection>(*this, origin, accept);
  connections_.push_back(connection);
  metrics_.SetConnections(connections_.size());
  connection->Begin(std::prev(connections_.end()));
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
  SetBounds();
  targets_.Clear();
}

void ProxyLoop::SetBounds() {
  groups_.SetLimit(ClientLimit::kConnections, options_.max_connections);
  groups_.SetLimit(ClientLimit::kCalls, options_.max_calls);
  groups_.SetLimit(ClientLimit::kTargets, options_.max_targets);
  openings_.SetLimit(std::clamp(options_.max_connections / kConnectionsPerOpening, kMinOpenings, kMaxOpenings));
  held_answers_.SetBound(options_.max_held_bytes, options_.max_calls);
  held_requests_.SetBound(options_.max_held_bytes, options_.max_calls);
}

void ProxyLoop::SetOwnAddresses(std::vector<std::string> addresses, std::vector<std::string> host) {
  own_addresses_ = std::move(addresses);
  host_ = std::move(host);
  SetPolicies(*policies_);
}

void ProxyLoop::SetPolicies(ClientPolicies policies) {
  policies.SetOwnAddresses(own_addresses_, host_);
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
  if (!held_answers_.full() && !held_requests_.full()) return;
  if (std::exchange(limit_queued_, true)) return;
  link_.AtEndOfTurn([this, alive = std::weak_ptr<const void>(alive_)] {
    if (alive.expired()) return;
    limit_queued_ = false;
    held_requests_.ReleaseStuck(link_.now());
    if (!held_answers_.full()) return;
    held_answers_.ReleaseStuck(link_.now() - kStuckAfter);
    held_answers_.ReleaseAbove(2 * held_answers_.max_bytes());
  });
}

void ProxyLoop::OnCallEnded(const EndedCall& call) {
  if (!call.refused) {
    metrics_.SetCalls(--calls_);
    metrics_.CountCall(call.pattern, call.code);
  }
  const bool is_sampled = call.code != absl::StatusCode::kOk || options_.access_sample >= 1 ||
                          link_.executor().Random() < options_.access_sample;
  if (on_access_ != nullptr && is_sampled) on_access_(RecordOf(call, link_));
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
      groups_.Report();
    }
    LookAround();
  });
}

}  // namespace sluice
