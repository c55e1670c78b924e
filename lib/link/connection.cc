#include "lib/link/connection.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// How an alert of TLS begins (RFC 8446, section 5.1). In HTTP/2 it would be a first frame of more than a megabyte,
// which no server may send (RFC 9113, section 4.2).
constexpr char kTlsAlert = 21;

// Kestrel ends a connection on which a write is blocked by a window and no frame was flushed for 5 to 7 s
// (MinResponseDataRate). An acknowledgement of a SETTINGS is such a frame. Rejected: PINGs, which gRPC's servers count.
constexpr std::chrono::seconds kSettingsEvery(3);

}  // namespace

Connection::Connection(Executor& executor, TimerQueue& timers, FlushQueue& flushes, const Options& options,
                       ConnectionEvents& events)
    : executor_(executor),
      timers_(timers),
      flushes_(flushes),
      options_(options),
      events_(&events),
      socket_(std::make_unique<HappyEyeballsSocket>(
          executor, timers, options_.addresses,
          Executor::ConnectOptions{
              .tls = options_.tls, .server_name = options_.server_name, .tls_later = options_.tls != nullptr},
          static_cast<StreamSocketEvents&>(*this))) {}

// Close and End flush at once, and leave it in the queue.
Connection::~Connection() {
  timers_.Clear(look_);
  timers_.Clear(held_look_);
  flushes_.Forget(*this);
}

void Connection::OnTcpConnected() {
  if (!over_) events_->OnTcpConnected(*this);
}

void Connection::OnConnected() {
  auto session = Http2Session::Create(options_.session, *this);
  if (!session.ok()) return End(session.status());
  session_ = *std::move(session);
  FlushLater();
}

void Connection::OnBytes(absl::string_view bytes) {
  if (over_) return;
  received_bytes_ += bytes.size();
  received_at_ = executor_.Now();
  if (!up_ && options_.tls == nullptr && !bytes.empty() && bytes[0] == kTlsAlert) {
    return End(absl::UnavailableError(absl::StrCat(socket_->address().text, " speaks TLS, and this client does not")));
  }
  const absl::Status received = session_->Receive(bytes);
  if (session_ == nullptr) return;  // an event has closed it
  if (session_->wants_write()) FlushLater();
  if (!received.ok()) return End(received);
  if (up_) return;
  up_ = true;
  up_since_ = idle_since_ = received_at_;
  events_->OnUp(*this);
  if (session_ != nullptr && session_->going_away()) OnSlots();  // its GOAWAY came before OnUp
}

void Connection::OnDisconnected(absl::Status why) {
  disconnected_ = true;
  if (session_ != nullptr && !up_ && options_.tls == nullptr) {
    // gRPC's servers send no alert.
    return End(absl::UnavailableError(absl::StrCat(socket_->address().text,
                                                   " ended the connection before HTTP/2 began; it may expect TLS",
                                                   why.ok() ? "" : ": ", why.message())));
  }
  End(why.ok() ? absl::UnavailableError("the worker closed the connection") : std::move(why));
}

// A client takes no streams of the server's; push is off.
StreamEvents* Connection::OnStream(int32_t) {
  return nullptr;
}

void Connection::OnSlots() {
  if (up_ && !over_) events_->OnSlots(*this);
}

void Connection::End(absl::Status why) {
  if (std::exchange(over_, true)) return;
  timers_.Clear(look_);
  timers_.Clear(held_look_);
  if (!disconnected_) Flush();  // a GOAWAY with the reason
  if (session_ != nullptr) session_->Lose(why.message());
  events_->OnDown(*this, std::move(why));
}

void Connection::Close() {
  if (std::exchange(over_, true)) return;
  timers_.Clear(look_);
  timers_.Clear(held_look_);
  if (session_ == nullptr) return;
  session_->GoAway(Http2Error::kNoError);
  Flush();
  session_->Lose();
}

void Connection::FlushLater() {
  if (!std::exchange(flush_queued_, true)) flushes_.FlushLater(*this);
}

void Connection::Flush() {
  flush_queued_ = false;
  if (session_ == nullptr) return;
  session_->Output(output_);
  if (output_.empty()) return;
  socket_->Write(std::exchange(output_, std::string()));
  if (!over_ && look_ == TimerQueue::Id() && session_->streams() > 0) {
    silence_.Begin(received());
    WatchForSilence();
  }
}

void Connection::WatchForSilence() {
  look_ = timers_.Set(executor_.Now() + SilenceWatch::kLookEvery, [this] { LookForSilence(); });
}

void Connection::LookForSilence() {
  look_ = {};
  if (session_->streams() == 0) return;
  switch (silence_.Look(executor_.Now(), received())) {
    case SilenceWatch::Verdict::kAlive:
      break;
    case SilenceWatch::Verdict::kPing:
      session_->Send(Http2Session::Probe::kPing);
      FlushLater();
      break;
    case SilenceWatch::Verdict::kFrozen:
      return End(
          absl::UnavailableError(absl::StrCat(socket_->address().text, " has sent nothing for ",
                                              SilenceWatch::kLookEvery.count() * SilenceWatch::kLooksBeforePing,
                                              " s, and then no answer to an HTTP/2 PING; its process may be frozen")));
  }
  WatchForSilence();
}

// The timer stays set when no response is held any more: most are held for less than kSettingsEvery.
void Connection::OnResponseHeld(bool held) {
  held ? ++held_ : --held_;
  if (held && held_look_ == TimerQueue::Id()) {
    held_look_ = timers_.Set(executor_.Now() + kSettingsEvery, [this] { LookAtHeld(); });
  }
}

void Connection::LookAtHeld() {
  held_look_ = {};
  if (held_ == 0) return;
  const TimePoint now = executor_.Now();
  TimePoint due = received_at_ + kSettingsEvery;
  if (due <= now) {
    session_->Send(Http2Session::Probe::kSettings);
    FlushLater();
    due = now + kSettingsEvery;
  }
  held_look_ = timers_.Set(due, [this] { LookAtHeld(); });
}

// A socket on a thread of its own may report an earlier write although it is congested again.
void Connection::OnDrained() {
  if (socket_->congested()) return;
  auto drained = std::exchange(undrained_, {});
  while (!drained.empty()) {
    ScheduledStream& call = drained.front();
    drained.pop_front();
    call.OnWritable();
  }
}

void Connection::OnStreamOpens(uint64_t client) {
  if (++clients_[client] == kSharedStreams + 1) ++large_clients_;
}

void Connection::OnStreamClosed(uint64_t client) {
  const auto found = clients_.find(client);
  if (found->second-- == kSharedStreams + 1) --large_clients_;
  if (found->second > 0) return;
  clients_.erase(found);
  if (clients_.empty()) idle_since_ = executor_.Now();
}

// A large client stays: to go elsewhere would not take away what it has here.
bool Connection::Suits(uint64_t client) const {
  const auto found = clients_.find(client);
  const size_t streams = found == clients_.end() ? 0 : found->second;
  if (clients_.size() == (streams > 0 ? 1 : 0)) return true;
  return large_clients_ == 0 ? streams < kSharedStreams : streams > kSharedStreams;
}

void Connection::CheckPeer() {
  if (!up_ || over_) return;
  socket_->CheckPeer([this](const absl::Status& why) { End(why); });
}

std::optional<TcpSocket> Connection::Tcp() const {
  return up_ && !over_ ? socket_->Tcp() : std::nullopt;
}

}  // namespace sluice
