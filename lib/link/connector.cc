#include "lib/link/connector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/link/link_loop.h"
#include "lib/net/happy_eyeballs.h"
#include "lib/net/worker_address.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr nanoseconds kFirstBackOff = milliseconds(200);
constexpr nanoseconds kMaxBackOff = seconds(5);
constexpr double kBackOffFactor = 1.6;
constexpr double kBackOffJitter = 0.2;
// For TCP to an address, and for TLS and HTTP/2. A lost SYN is sent again after 1 s and 3 s.
constexpr nanoseconds kAttemptTimeout = seconds(5);

// The bytes of a handshake that cross the port: a SYN-ACK and the server's SETTINGS; with TLS a chain of certificates.
// Room for TLS is requested once TCP is connected, because each attempt at a dead host would hold it for a stall
// timeout.
constexpr int64_t kTcpHandshakeBytes = 192;
constexpr int64_t kTlsHandshakeBytes = 6 << 10;
// A handshake without room for this time has failed: other processes of the host block the link.
constexpr nanoseconds kMaxHandshakeWait = seconds(60);

}  // namespace

Connector::Connector(LinkLoop& loop, std::string target, std::shared_ptr<TlsContext> tls, std::string server_name,
                     ConnectorEvents& events)
    : loop_(loop),
      target_(std::move(target)),
      tls_(std::move(tls)),
      server_name_(std::move(server_name)),
      events_(events),
      back_off_(kFirstBackOff) {}

Connector::~Connector() {
  loop_.timers().Clear(timer_);
  LeaveRoom();
  EndHandshake(CallEnd::kAborted);
  if (connection_ != nullptr) connection_->Close();
}

void Connector::Connect() {
  if (!trying_) LookUp();
}

void Connector::Close() {
  loop_.timers().Clear(timer_);
  look_up_.reset();
  trying_ = true;
  backs_off_ = false;
  failure_ = absl::UnavailableError(absl::StrCat(target_, ": the link is closed"));
  if (connection_ != nullptr) connection_->Close();
  loop_.Bury(std::move(connection_));
}

// The failure ends, too, so that calls wait for the attempt.
void Connector::ConnectNow() {
  if (!backs_off_) return;
  loop_.timers().Clear(timer_);
  failure_ = absl::OkStatus();
  LookUp();
}

void Connector::LookUp() {
  trying_ = true;
  backs_off_ = false;
  tried_one_ = false;
  look_up_ = loop_.executor().Resolve(target_, [this](absl::StatusOr<std::vector<WorkerAddress>> addresses) {
    look_up_.reset();
    if (addresses.ok()) {
      known_ = *std::move(addresses);
    } else if (!absl::IsUnavailable(addresses.status())) {
      known_.clear();
    }
    look_up_failure_ = known_.empty() ? absl::OkStatus() : addresses.status();
    if (known_.empty()) {
      return Fail(addresses.ok() ? absl::UnavailableError("the name has no address") : addresses.status());
    }
    addresses_ = known_;
    AskForRoom(kTcpHandshakeBytes);
  });
}

void Connector::AskForRoom(int64_t bytes) {
  waits_for_room_ = true;
  // After TCP has connected, the attempt is no longer a retry: the host is alive.
  const bool retry = connection_ == nullptr && (!failure_.ok() || tried_one_);
  const absl::Status asked = loop_.schedule_run().SubmitAhead(
      {.response_bytes = bytes, .tag = Scheduled::tag(), .retry = retry}, loop_.now() + kMaxHandshakeWait, room_);
  if (!asked.ok()) EndUnsent(asked);
}

void Connector::LeaveRoom() {
  if (std::exchange(waits_for_room_, false)) loop_.schedule_run().Cancel(room_);
}

// Back off only if the schedule has ended the wait. If the connector has ended it, do nothing.
void Connector::EndUnsent(absl::Status why) {
  if (!std::exchange(waits_for_room_, false)) return;
  loop_.Bury(std::move(connection_));
  Fail(why);
}

void Connector::Send(int64_t) {
  waits_for_room_ = false;
  handshake_out_ = true;
  if (connection_ != nullptr) {
    connection_->StartTls();
  } else {
    connection_ = std::make_unique<Connection>(loop_.executor(), loop_.timers(), loop_.flushes(),
                                               Connection::Options{.addresses = addresses_,
                                                                   .tls = tls_,
                                                                   .server_name = ServerName(),
                                                                   .session = loop_.workers().session_options()},
                                               *this);
  }
  WatchAttempt();
}

void Connector::WatchAttempt() {
  const nanoseconds delays = HappyEyeballs::kAttemptDelay * (addresses_.size() - 1);
  timer_ = loop_.timers().Set(loop_.now() + kAttemptTimeout + delays, [this] {
    OnAttemptFailed(absl::UnavailableError(
        absl::StrCat("no connection within ", absl::FormatDuration(absl::FromChrono(kAttemptTimeout)))));
  });
}

void Connector::OnTcpConnected(Connection& connection) {
  if (&connection != connection_.get()) return;
  EndHandshake(CallEnd::kArrived);
  AskForRoom(kTlsHandshakeBytes);
}

// Hand over the connection first: the end of the handshake may make room for calls of this worker.
void Connector::OnUp(Connection& connection) {
  trying_ = false;
  failure_ = look_up_failure_ = absl::OkStatus();
  back_off_ = kFirstBackOff;
  connection.SetEvents(events_);
  events_.OnConnected(std::move(connection_));
  EndHandshake(CallEnd::kArrived);
  events_.OnUp(connection);
}

void Connector::OnDown(Connection& connection, absl::Status why) {
  if (&connection == connection_.get()) OnAttemptFailed(why);
}

void Connector::EndHandshake(CallEnd end) {
  loop_.timers().Clear(timer_);
  if (std::exchange(handshake_out_, false)) loop_.schedule_run().OnFinished(id(), end);
}

void Connector::OnAttemptFailed(const absl::Status& why) {
  const WorkerAddress* const accepted = connection_->address();
  if (accepted != nullptr) std::erase(addresses_, *accepted);
  const bool others = accepted != nullptr && !addresses_.empty();
  loop_.Bury(std::move(connection_));
  LeaveRoom();
  EndHandshake(CallEnd::kAborted);
  if (!others) return Fail(why);
  tried_one_ = true;
  AskForRoom(kTcpHandshakeBytes);
}

void Connector::BackOff(const absl::Status& why) {
  if (!trying_) Fail(why);
}

void Connector::ConnectLater() {
  if (!trying_) Pause();
}

void Connector::Fail(const absl::Status& why) {
  std::string text(why.message());
  // The error already names the target if the address is the target.
  if (!absl::StrContains(text, target_)) text = absl::StrCat(target_, ": ", text);
  if (!look_up_failure_.ok()) {
    absl::StrAppend(&text, ", at the last known address (", look_up_failure_.message(), ")");
  }
  if (tls_ != nullptr && !tls_->reload_status().ok()) {
    absl::StrAppend(&text, "; the files of TLS have changed and are not taken: ", tls_->reload_status().message());
  }
  failure_ = absl::UnavailableError(text);
  Pause();
  events_.OnConnectFailed();
}

void Connector::Pause() {
  trying_ = true;
  backs_off_ = true;
  const double jitter = 1 + kBackOffJitter * (2 * loop_.executor().Random() - 1);
  const auto pause = std::chrono::duration_cast<nanoseconds>(back_off_ * jitter);
  back_off_ = std::min(std::chrono::duration_cast<nanoseconds>(back_off_ * kBackOffFactor), kMaxBackOff);
  timer_ = loop_.timers().Set(loop_.now() + pause, [this] {
    if (events_.WantsConnection()) return LookUp();
    trying_ = backs_off_ = false;
    failure_ = absl::OkStatus();
  });
}

// Returns the name that the certificate must contain.
std::string Connector::ServerName() const {
  if (tls_ == nullptr) return "";
  if (!tls_->options().server_name.empty()) return tls_->options().server_name;
  if (!server_name_.empty()) return server_name_;
  const absl::StatusOr<WorkerTarget> target = ParseWorkerTarget(target_);
  return target.ok() ? target->host : "";  // the look-up refuses a target without a name
}

}  // namespace sluice
