#include "tests/simulation/wire_oracle.h"

#include <algorithm>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace sluice::testing {
namespace {

constexpr size_t kPrefaceBytes = 24;  // RFC 9113, section 3.4
// The part of a window that is not granted: a length prefix and a spare byte.
constexpr int64_t kRoomBytes = 6;
constexpr size_t kPrefixBytes = 5;  // of a message: a flag and its length (gRPC, PROTOCOL-HTTP2)
constexpr double kResetsPerSecond = 5;
constexpr double kResetsAtOnce = 15;
// While there is no schedule, the share of a worker is the largest number, which cannot grow.
constexpr int64_t kMostBytes = int64_t{1} << 40;

// Headers on the wire above this size are large: the schedule keeps more than the usual room for them.
constexpr size_t kLargeHeaderBytes = 192;

constexpr uint32_t kProtocolError = 1;  // section 7
constexpr uint8_t kEndStream = 1;
constexpr uint32_t kLastStream = (1u << 31) - 1;  // section 5.1.1

uint32_t Number(const char* bytes) {
  const auto* digits = reinterpret_cast<const uint8_t*>(bytes);
  return (uint32_t{digits[0]} & 0x7f) << 24 | uint32_t{digits[1]} << 16 | uint32_t{digits[2]} << 8 | digits[3];
}

std::vector<double> WeightsOf(const ScheduleOptions& schedule) {
  std::vector<double> weights;
  for (const TrafficClass& traffic_class : schedule.classes) weights.push_back(traffic_class.weight);
  return weights;
}

}  // namespace

WireOracle::WireOracle(const ScheduleOptions& schedule, int64_t budget_bytes, size_t workers)
    : profile_(schedule.profile),
      policy_(schedule.policy),
      budget_bytes_(budget_bytes),
      drain_time_(absl::ToChronoNanoseconds(
          profile_.propagation_rtt +
          absl::Seconds(static_cast<double>(budget_bytes) / profile_.capacity_bytes_per_second))),
      stall_time_(drain_time_ + absl::ToChronoNanoseconds(schedule.stall_timeout)),
      late_blocks_(profile_.capacity_bytes_per_second),
      small_blocks_({.budget_bytes = budget_bytes,
                     .part_bytes = PartCost(kMostBytes),
                     .bytes_per_second = profile_.capacity_bytes_per_second,
                     .slack = 2 * drain_time_}),
      class_weights_(WeightsOf(schedule)),
      class_shares_(class_weights_, PartCost(kMostBytes)),
      free_room_(budget_bytes, schedule.ready_bytes),
      expected_bytes_(budget_bytes / 3),
      workers_(workers),
      resets_(workers) {}

void WireOracle::SetPolicy(SchedulePolicy policy) {
  policy_ = policy;
  unscheduled_ = unscheduled_ || !scheduled();
  small_blocks_.Restart();
  class_shares_.Restart();
  free_room_.Restart();
  grants_.clear();  // the policy before decided them
}

void WireOracle::Opened(ConnectionId id, size_t worker) {
  Connection& connection = connections_[id];
  connection.id = id;
  connection.worker = worker;
  connection.sent = FrameReader(kPrefaceBytes);
}

void WireOracle::Sent(ConnectionId id, absl::string_view bytes, TimePoint now) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  connection.sent.Read(
      bytes, [&] { OnSent(connection, connection.sent, now); },
      [&](absl::string_view data) {
        const auto stream = connection.streams.find(connection.sent.stream());
        if (stream != connection.streams.end()) stream->second.request.append(data.data(), data.size());
      });
}

void WireOracle::OnSent(Connection& connection, const FrameReader& frame, TimePoint now) {
  const uint32_t id = frame.stream();
  if (frame.type() == FrameReader::kHeaders) {
    Stream& stream = connection.streams.try_emplace(id).first->second;
    stream.opened_at = now;
    stream.unbounded = stream.unbounded || !scheduled();
    if (id == kLastStream) ++last_streams_;
    return;
  }
  const auto stream = connection.streams.find(id);
  if (frame.type() == FrameReader::kRstStream) {
    TakeReset(connection.worker, Number(frame.payload().data()), now);
    if (stream == connection.streams.end()) return;
    Drain(connection, stream->second, now);
    drained_streams_[connection.id].streams[id] = IsForgotten(stream->second) ? TimePoint() : now + drain_time_;
    EndStream(connection, id);
  } else if (frame.type() == FrameReader::kWindowUpdate && stream != connection.streams.end()) {
    Grant(connection, id, stream->second, Number(frame.payload().data()), now);
  } else if (frame.type() == FrameReader::kData && stream != connection.streams.end()) {
    if ((frame.flags() & kEndStream) != 0) OnRequest(stream->second);
  }
}

void WireOracle::OnRequest(Stream& stream) {
  if (stream.request.size() <= kPrefixBytes) return;
  stream.question = ParseQuestion(absl::string_view(stream.request).substr(kPrefixBytes)).value_or(Question{});
  expected_bytes_ = std::max(expected_bytes_, static_cast<int64_t>(stream.question.bytes * stream.question.messages));
  const TimePoint deadline{std::chrono::nanoseconds(stream.question.deadline_ns)};
  if (stream.question.block == 0 || stream.opened_at < deadline) return;
  breaches_.push_back(absl::StrCat("a request left ", (stream.opened_at - deadline) / std::chrono::microseconds(1),
                                   " us after its deadline"));
}

void WireOracle::Received(ConnectionId id, absl::string_view bytes, TimePoint now) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  LookAt(connection.worker);
  workers_[connection.worker].delivered = true;
  connection.received.Read(
      bytes, [&] { OnReceived(connection, connection.received); },
      [&](absl::string_view data) {
        const auto stream = connection.streams.find(connection.received.stream());
        if (stream != connection.streams.end()) OnData(stream->second, data, now);
      });
}

void WireOracle::OnReceived(Connection& connection, const FrameReader& frame) {
  const uint8_t type = frame.type();
  const bool ends = (frame.flags() & kEndStream) != 0;
  if (type == FrameReader::kHeaders && frame.size() > kLargeHeaderBytes) large_headers_ = true;
  if (type == FrameReader::kRstStream || ((type == FrameReader::kData || type == FrameReader::kHeaders) && ends)) {
    EndStream(connection, frame.stream());
  } else if (type == FrameReader::kGoAway && frame.payload().size() >= 4) {
    const uint32_t last = Number(frame.payload().data());
    while (!connection.streams.empty() && connection.streams.rbegin()->first > last) {
      EndStream(connection, connection.streams.rbegin()->first);
    }
  }
}

void WireOracle::EndStream(Connection& connection, uint32_t id) {
  const auto found = connection.streams.find(id);
  if (found == connection.streams.end()) return;
  CountEnded(connection, id, found->second);
  connection.streams.erase(found);
}

// A grant that the schedule decided in this turn does not leave if the stream has ended.
void WireOracle::CountEnded(const Connection& connection, uint32_t id, const Stream& stream) {
  const Question& question = stream.question;
  ended_bytes_[question.block] += MostBytes(stream);
  if (stream.rest_bytes == 0) return;
  grants_.push_back({.connection = connection.id,
                     .stream = id,
                     .grant = {.block = question.block,
                               .traffic_class = question.traffic_class,
                               .cost_bytes = PartCost(stream.rest_bytes),
                               .perhaps = true}});
}

void WireOracle::OnData(Stream& stream, absl::string_view data, TimePoint now) {
  const int64_t message_bytes = TakeMessageBytes(stream, data, now);
  stream.window_bytes -= static_cast<int64_t>(data.size());
  stream.prefix_bytes += static_cast<int64_t>(data.size()) - message_bytes;
  if (stream.window_bytes < 0) breaches_.push_back("a worker has sent more than its window");
  stream.received_bytes += message_bytes;
  stream.early_bytes = std::max<int64_t>(stream.early_bytes - message_bytes, 0);
  stream.unsure_bytes = std::max<int64_t>(stream.unsure_bytes - message_bytes, 0);
  MarkStalled(stream, now);
  if (message_bytes > 0) stream.since = now;
  if (Owed(stream) <= 0) stream.stalled = false;
}

// Returns the number of bytes without length prefixes, which do not count as progress.
int64_t WireOracle::TakeMessageBytes(Stream& stream, absl::string_view data, TimePoint now) {
  int64_t message_bytes = 0;
  while (!data.empty()) {
    if (stream.rest_bytes > 0) {
      const size_t taken = std::min<size_t>(stream.rest_bytes, data.size());
      stream.rest_bytes -= static_cast<uint32_t>(taken);
      message_bytes += static_cast<int64_t>(taken);
      data.remove_prefix(taken);
      continue;
    }
    stream.prefix += data.front();
    data.remove_prefix(1);
    if (stream.prefix.size() < kPrefixBytes) continue;
    if (!std::exchange(stream.ready, true)) {
      stream.ready_in_turn = true;
      stream.ready_at = now;
    }
    stream.rest_bytes = Number(stream.prefix.data() + 1);
    stream.prefix.clear();
  }
  return message_bytes;
}

void WireOracle::Grant(const Connection& connection, uint32_t id, Stream& stream, int64_t bytes, TimePoint now) {
  // `bytes` restore the room of the received prefixes, and of a few bytes that came in the spare room. The rest is
  // granted.
  MarkStalled(stream, now);
  const int64_t owed_bytes = Owed(stream);
  const int64_t prefix_bytes = std::exchange(stream.prefix_bytes, 0);
  const int64_t granted_bytes = std::max<int64_t>(bytes - prefix_bytes, 0);
  if (granted_bytes > 0) granted_ = true;
  if (granted_bytes > 0) stream.granted_in_turn = true;
  if (granted_bytes > 0 && !scheduled()) stream.unbounded = true;
  if (granted_bytes > kRoomBytes) workers_[connection.worker].granted = true;
  if (granting() && !stream.ready && granted_bytes > 0) {
    stream.early_bytes += granted_bytes;
    const auto waits = [this](const auto& other) {
      return other.second.ready && other.second.rest_bytes > 0 && Outstanding(other.second) == 0;
    };
    if (std::any_of(connection.streams.begin(), connection.streams.end(), waits)) ++early_beside_;
  }
  if (stream.ready_in_turn) stream.unsure_bytes += granted_bytes;
  // Start the timer if no bytes of an earlier grant are outstanding. Do not restart a running timer while the window
  // has more than one byte: granted bytes and room look the same.
  const bool idle = owed_bytes <= stream.early_bytes;
  if (idle && (stream.window_bytes <= 1 || now - stream.since >= stall_time_)) stream.since = now;
  const int64_t cost_before = Cost(Outstanding(stream));
  stream.window_bytes += bytes;
  const int64_t cost_bytes = Cost(Outstanding(stream)) - cost_before;
  // A larger grant was decided by the policy before, and leaves late.
  grants_.push_back({.connection = connection.id,
                     .stream = id,
                     .grant = {.block = stream.question.block,
                               .traffic_class = stream.question.traffic_class,
                               .cost_bytes = cost_bytes,
                               .perhaps = cost_bytes > 2 * PartCost(kMostBytes)}});
}

// Bytes that the client let come may still arrive after it gave the stream up. They keep their charge for the drain
// time.
void WireOracle::Drain(const Connection& connection, Stream& stream, TimePoint now) {
  MarkStalled(stream, now);
  const int64_t bytes = Charge(stream);
  if (bytes > 0) draining_.push_back({now + drain_time_, bytes, connection.worker, Holds(stream)});
  if (!stream.ready) draining_headers_.push_back(now + drain_time_);
}

void WireOracle::Closed(ConnectionId id, TimePoint now) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Drained& drained = drained_streams_[id];
  drained.connection = now + drain_time_;
  for (auto& [stream_id, stream] : found->second.streams) {
    Drain(found->second, stream, now);
    if (IsForgotten(stream)) drained.streams[stream_id] = TimePoint();
    CountEnded(found->second, stream_id, stream);
  }
  connections_.erase(found);
}

TimePoint WireOracle::ChargedUntil(ConnectionId id, const std::vector<uint32_t>& streams) const {
  TimePoint until = streams.empty() ? TimePoint::max() : TimePoint();
  for (const uint32_t stream : streams) until = std::max(until, StreamChargedUntil(id, stream));
  return until;
}

TimePoint WireOracle::StreamChargedUntil(ConnectionId id, uint32_t stream) const {
  if (const auto connection = connections_.find(id); connection != connections_.end()) {
    const auto open = connection->second.streams.find(stream);
    if (open != connection->second.streams.end()) return IsForgotten(open->second) ? TimePoint() : TimePoint::max();
  }
  const auto drained = drained_streams_.find(id);
  if (drained == drained_streams_.end()) return TimePoint::max();
  const auto found = drained->second.streams.find(stream);
  return found == drained->second.streams.end() ? drained->second.connection : found->second;
}

TimePoint WireOracle::HandshakeBegins(ConnectionId id, int64_t bytes, TimePoint now) {
  handshakes_.erase(id);
  if (!scheduled()) return TimePoint();
  handshakes_[id] = {.since = now, .cost_bytes = Cost(bytes)};
  handshake_began_ = true;
  return TimePoint::max();
}

void WireOracle::HandshakeEnds(ConnectionId id, HandshakeEnd end, TimePoint now) {
  const auto handshake = handshakes_.extract(id);
  if (handshake.empty() || end == HandshakeEnd::kArrived || now - handshake.mapped().since >= stall_time_) return;
  draining_.push_back({now + drain_time_, handshake.mapped().cost_bytes});
}

// The session resets a stream by itself if the worker breaks the protocol. Later resets then wait.
void WireOracle::TakeReset(size_t worker, uint32_t error, TimePoint now) {
  Resets& resets = resets_[worker];
  const std::chrono::duration<double> elapsed = now - std::exchange(resets.since, now);
  resets.left = std::min(kResetsAtOnce, resets.left + kResetsPerSecond * elapsed.count()) - 1;
  // Allow a small error: the client reads its clock slightly earlier or later than this oracle.
  const bool by_session = error == kProtocolError;
  if (resets.left < -0.01 && !by_session)
    breaches_.push_back(absl::StrCat("worker ", worker, " is reset more often than allowed"));
  if (resets.left >= 1) return;
  ++rationed_resets_;
  resets.rationed_until = now + absl::ToChronoNanoseconds(absl::Seconds((1 - resets.left) / kResetsPerSecond));
}

void WireOracle::EndTurn(TimePoint now) {
  const bool granted = std::exchange(granted_, false);
  const bool handshake_began = std::exchange(handshake_began_, false);
  if (!granted && !handshake_began && load_of_ == nullptr) return;
  while (!draining_.empty() && draining_.front().until <= now) draining_.pop_front();
  for (size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].charged_bytes = 0;
    LookAt(i);
  }
  // `holders` counts the calls that hold more than early bytes, except calls of slow workers. A single holder may be
  // charged more than the budget.
  int64_t holders = 0;
  int64_t charged_bytes = HandshakeBytes(now, handshake_began);
  int64_t slow_bytes = 0;
  for (Draining& draining : draining_) {
    // The worker counts as it was in the turn of the abort. The schedule may have granted bytes in that turn before the
    // abort.
    const bool in_turn = draining.until == now + drain_time_;
    if (in_turn && draining.worker.has_value()) draining.slow = workers_[*draining.worker].was_slow;
    if (!in_turn || (draining.held && !draining.slow)) ++holders;
    charged_bytes += draining.bytes;
    if (draining.slow) slow_bytes += draining.bytes;
  }
  std::vector<OpenResponse> responses;
  if (granting() && load_of_ != nullptr) responses = OpenResponses();
  int64_t early_bytes = 0;
  for (auto& [id, connection] : connections_) {
    Worker& worker = workers_[connection.worker];
    for (auto& [stream_id, stream] : connection.streams) {
      MarkStalled(stream, now);
      const int64_t early = EarlyCost(stream);
      const int64_t charge = Charge(stream);
      early_bytes += early;
      charged_bytes += charge;
      const int64_t sure =
          stream.stalled || stream.unbounded ? 0 : Cost(Outstanding(stream) - stream.early_bytes - stream.unsure_bytes);
      worker.charged_bytes += sure;
      stream.ready_in_turn = stream.granted_in_turn = false;
      if (worker.was_slow) slow_bytes += charge - early;
      if (Holds(stream) && !worker.was_slow) ++holders;
    }
  }
  if (granted && early_bytes > budget_bytes_ / 3) {
    breaches_.push_back(absl::StrCat(early_bytes, " early bytes are more than a third of ", budget_bytes_));
  }
  const int64_t counted_bytes = std::max(budget_bytes_ / 3, Cost(profile_.packet_payload_bytes));
  uncounted_bytes_ = std::max<int64_t>(slow_bytes - counted_bytes, 0);
  if ((granted || handshake_began) && charged_bytes - uncounted_bytes_ > budget_bytes_ && holders > 1) {
    breaches_.push_back(absl::StrCat(charged_bytes, " bytes may come, ", early_bytes, " of them early and ",
                                     uncounted_bytes_, " that do not count, to ", holders,
                                     " calls beside those; the budget is ", budget_bytes_));
  }
  drained_ = charged_bytes <= budget_bytes_;
  CheckOrder(responses, granted, charged_bytes, now);
  CheckShares();
}

// Checks the order in which responses were granted bytes, and that there was no more room.
void WireOracle::CheckOrder(const std::vector<OpenResponse>& responses, bool granted, int64_t charged_bytes,
                            TimePoint now) {
  const std::vector<TurnGrant> grants = TakeGrants();
  if (!granting() || load_of_ == nullptr) return;
  const auto check = [this](std::optional<std::string> breach) {
    if (breach.has_value()) breaches_.push_back(*std::move(breach));
  };
  if (granted) check(late_blocks_.Check(responses, now));
  std::map<uint64_t, int64_t> most_bytes;  // of the blocks with a response that waits
  for (const OpenResponse& response : responses) {
    if (response.waits) most_bytes.emplace(response.block, ended_bytes_[response.block]);
  }
  for (const auto& [id, connection] : connections_) {
    if (most_bytes.empty()) break;
    for (const auto& [stream_id, stream] : connection.streams) {
      const auto found = most_bytes.find(stream.question.block);
      if (found != most_bytes.end()) found->second += MostBytes(stream);
    }
  }
  check(small_blocks_.Check(responses, grants, most_bytes, now));
  check(class_shares_.Check(responses, grants));
  if (!unscheduled_ && !large_headers_) check(free_room_.Check(RoomOf(responses, charged_bytes, now), now));
}

std::vector<OpenResponse> WireOracle::OpenResponses() {
  std::vector<OpenResponse> responses;
  for (auto& [id, connection] : connections_) {
    for (auto& [stream_id, stream] : connection.streams) {
      if (stream.question.block == 0 || !stream.ready) continue;
      const bool could_be = CouldBeGranted(connection, stream);
      // The worker may have been full at the beginning of a turn in which it delivers.
      const bool could_be_before = std::exchange(stream.could_be, could_be) && !workers_[connection.worker].delivered;
      responses.push_back({.id = {id, stream_id},
                           .block = stream.question.block,
                           .traffic_class = stream.question.traffic_class,
                           .deadline = TimePoint(std::chrono::nanoseconds(stream.question.deadline_ns)),
                           // The grants of the turn may have left before the client knew the size of a response that
                           // came in it.
                           .ready = stream.ready && !stream.ready_in_turn,
                           .rest_bytes = stream.rest_bytes,
                           .granted = stream.granted_in_turn,
                           .could_be = could_be && !stream.ready_in_turn,
                           .waits = could_be && could_be_before});
    }
  }
  return responses;
}

std::vector<TurnGrant> WireOracle::TakeGrants() {
  std::vector<TurnGrant> grants;
  for (Granted& granted : std::exchange(grants_, {})) {
    const auto connection = connections_.find(granted.connection);
    if (granted.grant.block == 0 && connection != connections_.end()) {
      const auto stream = connection->second.streams.find(granted.stream);
      if (stream == connection->second.streams.end()) continue;
      granted.grant.block = stream->second.question.block;
      granted.grant.traffic_class = stream->second.question.traffic_class;
    }
    if (granted.grant.block > 0) grants.push_back(granted.grant);
  }
  return grants;
}

// Returns the cost of the bytes that were granted to the response or announced by it, or more.
int64_t WireOracle::MostBytes(const Stream& stream) const {
  return Cost(stream.received_bytes + std::max<int64_t>(stream.rest_bytes, Outstanding(stream)) + kRoomBytes);
}

FreeRoom::Turn WireOracle::RoomOf(const std::vector<OpenResponse>& responses, int64_t charged_bytes, TimePoint now) {
  FreeRoom::Turn turn{.charged_bytes = charged_bytes, .expected_bytes = expected_bytes_};
  const int64_t waiting_requests = waiting_requests_ == nullptr ? 0 : waiting_requests_();
  if (waiting_requests < 0) return turn;
  turn.request_waits = waiting_requests > 0;
  // A class that leaves room also delays the responses that the client has given up: they follow all classes.
  bool may_leave_room = false;
  for (const OpenResponse& response : responses) {
    turn.response_waits = turn.response_waits || response.waits;
    may_leave_room = may_leave_room || (response.waits && MayLeaveRoom(response, charged_bytes));
  }
  turn.response_waits = turn.response_waits && !may_leave_room;
  if (!turn.response_waits && !turn.request_waits) return turn;
  while (!draining_headers_.empty() && draining_headers_.front() <= now) draining_headers_.pop_front();
  turn.silent_calls = static_cast<int64_t>(draining_headers_.size());
  for (const auto& [id, connection] : connections_) {
    for (const auto& [stream_id, stream] : connection.streams) {
      if (!stream.ready || stream.rest_bytes == 0) ++turn.silent_calls;
      if (!stream.ready || stream.window_bytes > kRoomBytes) continue;
      turn.ready_bytes += stream.rest_bytes;
      turn.part_bytes = std::max(turn.part_bytes, PartCost(stream.rest_bytes));
    }
  }
  return turn;
}

// Returns whether the response may wait for room that is kept for heavier classes. Any of them may have responses to
// come, since a request that waits is not on the wire.
bool WireOracle::MayLeaveRoom(const OpenResponse& response, int64_t charged_bytes) const {
  if (class_weights_.empty()) return false;
  const double weight = class_weights_[response.traffic_class];
  double weights = weight;
  for (const double other : class_weights_) weights += other > weight ? other : 0;
  const auto budget_bytes = static_cast<double>(budget_bytes_);
  const double path_bytes = profile_.capacity_bytes_per_second * absl::ToDoubleSeconds(profile_.propagation_rtt);
  const double kept_bytes = std::max(budget_bytes * weight / weights, budget_bytes / 6 + 2 * path_bytes);
  return weights > weight && static_cast<double>(charged_bytes) + budget_bytes / 8 > kept_bytes;
}

// Returns the cost of the next grant of this many bytes.
int64_t WireOracle::PartCost(int64_t bytes) const {
  return std::min(Cost(std::min(bytes, kMostBytes)), std::max(budget_bytes_ / 3, Cost(profile_.packet_payload_bytes)));
}

// Returns whether only the order of the schedule can keep the response from its first grant. A stream waits for its
// reader as well, and a response that the client has given up keeps its stream open while resets are rationed. The
// client also rations resets that never leave, since a connection ends with its last stream.
bool WireOracle::CouldBeGranted(const Connection& connection, const Stream& stream) const {
  if (last_streams_ > 0) return false;
  if (stream.granted_in_turn || stream.rest_bytes == 0 || stream.question.streaming) return false;
  if (stream.window_bytes > kRoomBytes || resets_[connection.worker].rationed_until >= stream.ready_at) return false;
  const WorkerLoad load = load_of_(connection.worker);
  return !load.slow && load.charged_bytes == 0 && load.owing_calls == 0;
}

// Returns the bytes of handshakes that have not stalled, and checks their share.
int64_t WireOracle::HandshakeBytes(TimePoint now, bool began) {
  int64_t bytes = 0;
  int64_t count = 0;
  for (const auto& [id, handshake] : handshakes_) {
    if (now - handshake.since >= stall_time_) continue;
    bytes += handshake.cost_bytes;
    ++count;
  }
  if (began && count > 1 && bytes > budget_bytes_ / 3) {
    breaches_.push_back(
        absl::StrCat(count, " handshakes of ", bytes, " bytes are more than a third of ", budget_bytes_));
  }
  return bytes;
}

// A worker that is no longer slow may have been slow when it was granted its outstanding bytes, or within this turn.
// Its share may be halved, other workers then get the grants that fit, and the end of a lap makes its share a part
// again.
void WireOracle::LookAt(size_t index) {
  if (load_of_ == nullptr) return;
  Worker& worker = workers_[index];
  WorkerLoad load = load_of_(index);
  load.share_bytes = std::min(load.share_bytes, kMostBytes);
  const int64_t part_bytes = budget_bytes_ / 3;
  const bool just_grown = worker.delivered && load.share_bytes > part_bytes && load.share_bytes <= Grown(part_bytes);
  worker.slow = load.slow;
  worker.slow_for_long = worker.slow_for_long && load.slow;
  worker.was_slow = worker.was_slow || load.slow || just_grown;
  worker.share_bytes = std::max(worker.share_bytes, load.share_bytes);
}

// Returns the share after one more lap.
int64_t WireOracle::Grown(int64_t share_bytes) const {
  return std::max(share_bytes + Cost(profile_.packet_payload_bytes), share_bytes * 5 / 4);
}

// A worker is granted bytes only while it has less than its share, and never more than its share at once. Within a turn
// a lap may also have increased the share, and a late lap halved it again.
void WireOracle::CheckShares() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    const int64_t most_bytes = 2 * Grown(worker.share_bytes);
    if (std::exchange(worker.granted, false) && worker.slow_for_long && worker.charged_bytes > most_bytes) {
      breaches_.push_back(absl::StrCat("worker ", i, " is slow and has ", worker.charged_bytes,
                                       " bytes outstanding; its share was ", worker.share_bytes));
    }
    worker.slow_for_long = worker.slow;
    worker.was_slow = worker.slow || (worker.was_slow && !drained_);
    worker.share_bytes = 0;
    worker.delivered = false;
    LookAt(i);
  }
}

void WireOracle::MarkStalled(Stream& stream, TimePoint now) {
  if (stream.early_bytes == 0) stream.late = false;
  if (now - stream.since < stall_time_) return;
  if (Owed(stream) > stream.early_bytes) stream.stalled = true;
  // The early bytes of a call that has stalled have a timer of their own then.
  const auto late_after = stream.stalled ? 2 * stall_time_ : stall_time_;
  if (stream.early_bytes == 0 || now - stream.since < late_after) return;
  if (!std::exchange(stream.late, true)) ++early_hung_;
  early_late_ = true;
}

int64_t WireOracle::Outstanding(const Stream& stream) const {
  return std::max<int64_t>(stream.window_bytes - kRoomBytes, 0);
}

// Prefixes use the room of the window and none of the granted bytes, so add those back that no grant has restored yet.
int64_t WireOracle::Owed(const Stream& stream) const {
  return stream.window_bytes + stream.prefix_bytes - kRoomBytes;
}
int64_t WireOracle::EarlyCost(const Stream& stream) const {
  return stream.unbounded || stream.late ? 0 : Cost(std::min(stream.early_bytes, Outstanding(stream)));
}

int64_t WireOracle::Charge(const Stream& stream) const {
  if (stream.unbounded) return 0;
  const int64_t late_bytes = stream.late ? std::min(stream.early_bytes, Outstanding(stream)) : 0;
  return stream.stalled ? EarlyCost(stream) : Cost(Outstanding(stream)) - Cost(late_bytes);
}

// Returns whether the schedule charges no granted bytes: all have stalled, or nothing bounds them.
bool WireOracle::IsForgotten(const Stream& stream) const {
  return stream.unbounded || ((stream.stalled || stream.late) && EarlyCost(stream) == 0);
}

// Returns whether the stream holds more than bytes that are, or may be, early. All early bytes together are at most a
// third of the budget.
bool WireOracle::Holds(const Stream& stream) const {
  const int64_t perhaps_early_bytes = std::min(stream.early_bytes + stream.unsure_bytes, Outstanding(stream));
  return Charge(stream) > std::min(Cost(perhaps_early_bytes), budget_bytes_ / 3);
}

int64_t WireOracle::Cost(int64_t bytes) const {
  return bytes <= 0 ? 0 : BufferCostBytes(profile_, bytes);
}

}  // namespace sluice::testing
