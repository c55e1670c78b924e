#include "tests/simulation/wire_oracle.h"

#include <algorithm>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace sluice::testing {
namespace {

constexpr size_t kPrefaceBytes = 24;  // RFC 9113, section 3.4
// Of a window, beside what is granted: a length prefix and a spare byte.
constexpr int64_t kRoomBytes = 6;
constexpr size_t kPrefixBytes = 5;  // of a message: a flag and its length (gRPC, PROTOCOL-HTTP2)
constexpr double kResetsPerSecond = 5;
constexpr double kResetsAtOnce = 15;

// RFC 9113, section 6.
enum FrameType : uint8_t { kData = 0, kHeaders = 1, kRstStream = 3, kGoAway = 7, kWindowUpdate = 8 };
constexpr uint8_t kEndStream = 1;
constexpr uint32_t kLastStream = (1u << 31) - 1;  // section 5.1.1

uint32_t Number(const char* bytes) {
  const auto* digits = reinterpret_cast<const uint8_t*>(bytes);
  return (uint32_t{digits[0]} & 0x7f) << 24 | uint32_t{digits[1]} << 16 | uint32_t{digits[2]} << 8 | digits[3];
}
template <class Head>
uint32_t StreamOf(const Head& head) {
  return Number(reinterpret_cast<const char*>(head.data()) + 5);
}

}  // namespace

WireOracle::WireOracle(const LinkSchedule::Options& schedule, int64_t budget_bytes, size_t workers)
    : profile_(schedule.profile),
      granting_(schedule.discipline == Discipline::kGrants),
      budget_bytes_(budget_bytes),
      drain_time_(absl::ToChronoNanoseconds(
          profile_.propagation_rtt +
          absl::Seconds(static_cast<double>(budget_bytes) / profile_.capacity_bytes_per_second))),
      stall_time_(drain_time_ + absl::ToChronoNanoseconds(schedule.stall_timeout)),
      resets_(workers) {}

void WireOracle::Opened(ConnectionId id, size_t worker) {
  Connection& connection = connections_[id];
  connection.worker = worker;
  connection.sent.skip_bytes = kPrefaceBytes;
}

// Calls `on_frame` at the end of each frame, and `on_data` before that with what has come of DATA.
template <class FrameEvent, class DataEvent>
void WireOracle::Read(Frames& frames, absl::string_view bytes, FrameEvent on_frame, DataEvent on_data) {
  const size_t skipped = std::min(frames.skip_bytes, bytes.size());
  frames.skip_bytes -= skipped;
  bytes.remove_prefix(skipped);
  while (true) {
    if (frames.head_bytes < frames.head.size()) {
      const size_t taken = std::min(frames.head.size() - frames.head_bytes, bytes.size());
      std::copy_n(bytes.begin(), taken, frames.head.begin() + static_cast<std::ptrdiff_t>(frames.head_bytes));
      frames.head_bytes += taken;
      bytes.remove_prefix(taken);
      if (frames.head_bytes < frames.head.size()) return;
      frames.payload.clear();
      frames.payload_bytes = size_t{frames.head[0]} << 16 | size_t{frames.head[1]} << 8 | frames.head[2];
    }
    const size_t taken = std::min(frames.payload_bytes, bytes.size());
    frames.payload_bytes -= taken;
    const bool whole = frames.payload_bytes == 0;
    if (frames.head[3] == kData) {
      on_data(bytes.substr(0, taken));
    } else if (frames.payload.size() < 16) {
      frames.payload.append(bytes.data(), std::min<size_t>(taken, 16));
    }
    bytes.remove_prefix(taken);
    if (!whole) return;
    on_frame();
    frames.head_bytes = 0;
  }
}

void WireOracle::Sent(ConnectionId id, absl::string_view bytes, TimePoint now) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  Read(
      connection.sent, bytes, [&] { OnSent(connection, connection.sent, now); }, [](absl::string_view) {});
}

void WireOracle::OnSent(Connection& connection, const Frames& frame, TimePoint now) {
  const uint32_t id = StreamOf(frame.head);
  if (frame.head[3] == kHeaders) {
    connection.streams.try_emplace(id);
    if (id == kLastStream) ++last_streams_;
    return;
  }
  const auto stream = connection.streams.find(id);
  if (frame.head[3] == kRstStream) {
    TakeReset(connection.worker, now);
    if (stream == connection.streams.end()) return;
    Drain(stream->second, now);
    connection.streams.erase(stream);
  } else if (frame.head[3] == kWindowUpdate && stream != connection.streams.end()) {
    Grant(stream->second, Number(frame.payload.data()), now);
  }
}

void WireOracle::Received(ConnectionId id, absl::string_view bytes, TimePoint now) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  Read(
      connection.received, bytes, [&] { OnReceived(connection, connection.received); },
      [&](absl::string_view data) {
        const auto stream = connection.streams.find(StreamOf(connection.received.head));
        if (stream != connection.streams.end()) OnData(stream->second, data, now);
      });
}

void WireOracle::OnReceived(Connection& connection, const Frames& frame) {
  const uint8_t type = frame.head[3];
  const bool ends = (frame.head[4] & kEndStream) != 0;
  if (type == kRstStream || ((type == kData || type == kHeaders) && ends)) {
    connection.streams.erase(StreamOf(frame.head));
  } else if (type == kGoAway && frame.payload.size() >= 4) {
    connection.streams.erase(connection.streams.upper_bound(Number(frame.payload.data())), connection.streams.end());
  }
}

void WireOracle::OnData(Stream& stream, absl::string_view data, TimePoint now) {
  const int64_t message_bytes = TakeMessageBytes(stream, data);
  stream.came = true;
  stream.window_bytes -= static_cast<int64_t>(data.size());
  if (stream.window_bytes < 0) breaches_.push_back("a worker has sent more than its window");
  stream.early_bytes = std::max<int64_t>(stream.early_bytes - message_bytes, 0);
  MarkStalled(stream, now);
  if (message_bytes > 0) stream.since = now;
  if (Outstanding(stream) <= 0) stream.stalled = false;
}

// Without the length prefixes, which are no progress.
int64_t WireOracle::TakeMessageBytes(Stream& stream, absl::string_view data) {
  int64_t message_bytes = 0;
  for (const char byte : data) {
    if (stream.rest_bytes > 0) {
      --stream.rest_bytes;
      ++message_bytes;
      continue;
    }
    stream.prefix += byte;
    if (stream.prefix.size() < kPrefixBytes) continue;
    stream.rest_bytes = Number(stream.prefix.data() + 1);
    stream.prefix.clear();
  }
  return message_bytes;
}

void WireOracle::Grant(Stream& stream, int64_t bytes, TimePoint now) {
  granted_ = true;
  MarkStalled(stream, now);
  if (granting_ && !stream.came) stream.early_bytes += bytes;
  // The timer starts, unless some bytes that cannot be told from the room in the window keep it running.
  const bool idle = Outstanding(stream) <= stream.early_bytes;
  if (idle && (stream.window_bytes <= 1 || now - stream.since >= stall_time_)) stream.since = now;
  stream.window_bytes += bytes;
}

// What was let come may still come, to nobody: it takes its room for as long as a full port needs.
void WireOracle::Drain(Stream& stream, TimePoint now) {
  MarkStalled(stream, now);
  const int64_t bytes = stream.stalled ? EarlyCost(stream) : Cost(Outstanding(stream));
  if (bytes > 0) draining_.push_back({now + drain_time_, bytes});
}

void WireOracle::Closed(ConnectionId id, TimePoint now) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  for (auto& [stream_id, stream] : found->second.streams) Drain(stream, now);
  connections_.erase(found);
}

void WireOracle::TakeReset(size_t worker, TimePoint now) {
  Resets& resets = resets_[worker];
  const std::chrono::duration<double> elapsed = now - std::exchange(resets.since, now);
  resets.left = std::min(kResetsAtOnce, resets.left + kResetsPerSecond * elapsed.count()) - 1;
  // Whoever waits for a reset has had its clock read a little earlier or later.
  if (resets.left < -0.01) breaches_.push_back(absl::StrCat("worker ", worker, " is reset more often than allowed"));
  if (resets.left < 1) ++rationed_resets_;
}

void WireOracle::EndTurn(TimePoint now) {
  const bool granted = std::exchange(granted_, false);
  if (!granted && slow_bytes_ == nullptr) return;
  while (!draining_.empty() && draining_.front().until <= now) draining_.pop_front();
  int64_t holders = static_cast<int64_t>(draining_.size());
  int64_t charged_bytes = 0;
  for (const Draining& draining : draining_) charged_bytes += draining.bytes;
  int64_t early_bytes = 0;
  for (auto& [id, connection] : connections_) {
    for (auto& [stream_id, stream] : connection.streams) {
      MarkStalled(stream, now);
      const int64_t early = EarlyCost(stream);
      const int64_t charge = stream.stalled ? early : Cost(Outstanding(stream));
      early_bytes += early;
      charged_bytes += charge;
      if (charge > early) ++holders;
    }
  }
  if (granted && early_bytes > budget_bytes_ / 3) {
    breaches_.push_back(absl::StrCat(early_bytes, " early bytes are more than a third of ", budget_bytes_));
  }
  // A worker may be slow no more before its bytes have come.
  const int64_t slow_bytes = slow_bytes_ == nullptr ? 0 : slow_bytes_();
  const int64_t counted_bytes = std::max(budget_bytes_ / 3, Cost(profile_.packet_payload_bytes));
  const int64_t uncounted_bytes = std::max<int64_t>(slow_bytes - counted_bytes, 0);
  uncounted_bytes_ = charged_bytes <= budget_bytes_ ? uncounted_bytes : std::max(uncounted_bytes_, uncounted_bytes);
  if (!granted) return;
  // Or become healthy within a turn, when its part counts again; only the end of the turn is seen here.
  const bool slow = slow_bytes > 0;
  any_slow_ = any_slow_ || slow;
  const int64_t part_bytes = std::exchange(were_slow_, slow) || slow || uncounted_bytes_ > 0 ? budget_bytes_ / 3 : 0;
  if (charged_bytes - uncounted_bytes_ > budget_bytes_ + part_bytes && holders > 1) {
    breaches_.push_back(absl::StrCat(charged_bytes, " bytes may come, ", early_bytes, " of them early, to ", holders,
                                     " calls beside those; the budget is ", budget_bytes_, "; ", slow_bytes,
                                     " bytes are of slow workers"));
  }
}

void WireOracle::MarkStalled(Stream& stream, TimePoint now) const {
  if (now - stream.since >= stall_time_ && Outstanding(stream) > stream.early_bytes) stream.stalled = true;
}

int64_t WireOracle::Outstanding(const Stream& stream) const {
  return std::max<int64_t>(stream.window_bytes - kRoomBytes, 0);
}

int64_t WireOracle::EarlyCost(const Stream& stream) const {
  return Cost(std::min(stream.early_bytes, Outstanding(stream)));
}

int64_t WireOracle::Cost(int64_t bytes) const {
  return bytes <= 0 ? 0 : BufferCostBytes(profile_, bytes);
}

}  // namespace sluice::testing
