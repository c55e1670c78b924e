#include "lib/link/scheduled_connection.h"

#include <utility>

#include "lib/link/link_loop.h"

namespace sluice {
namespace {

constexpr char kLibraryTunnels[] = "library";  // in the place of a pattern of workers

}  // namespace

ScheduledConnection::ScheduledConnection(LinkLoop& loop, size_t traffic_class, User& user) : loop_(loop), user_(user) {
  if (!ScheduledTunnel::Possible(loop)) return;
  const auto on_turn = [this] {
    Pass();
    SetReading();
  };
  turns_ = std::make_unique<ScheduledTunnel>(
      loop, loop.metrics().Tunnels(kLibraryTunnels), traffic_class,
      ScheduledTunnel::Owner{.on_turn = on_turn,
                             .tcp = [this] { return open_ ? socket_->Tcp() : std::nullopt; },
                             .set_window = [this](int bytes) { socket_->SetReceiveWindow(bytes); },
                             .on_refused = [this](const absl::Status& why) { End(why, 0); }});
}

ScheduledConnection::~ScheduledConnection() = default;

void ScheduledConnection::Connect(const std::string& target) {
  look_up_ = loop_.executor().Resolve(target, [this](absl::StatusOr<std::vector<WorkerAddress>> addresses) {
    look_up_.reset();
    OnAddresses(std::move(addresses));
  });
}

// The handshake takes no room in the schedule, as in a tunnel of the proxy: a SYN-ACK is small.
void ScheduledConnection::OnAddresses(absl::StatusOr<std::vector<WorkerAddress>> addresses) {
  if (over_) return;
  if (!addresses.ok()) return End(absl::NotFoundError(addresses.status().message()), 0);
  const int receive_buffer_bytes = turns_ != nullptr ? ScheduledTunnel::ReceiveBufferBytes(loop_) : 0;
  const Executor::ConnectOptions options{
      .receive_buffer_bytes = receive_buffer_bytes, .may_stall = true, .half_open = true};
  socket_ = std::make_unique<HappyEyeballsSocket>(loop_.executor(), loop_.timers(), *std::move(addresses), options,
                                                  static_cast<StreamSocketEvents&>(*this));
}

void ScheduledConnection::OnConnected() {
  if (over_) return;
  open_ = true;
  user_.OnOpen();
}

void ScheduledConnection::Write(std::string bytes) {
  if (over_) return;
  written_ = false;
  if (takes_turns()) turns_->OnRequest(bytes);
  waiting_ = std::move(bytes);
  if (!takes_turns() || turns_->passes_requests()) Pass();
}

void ScheduledConnection::Pass() {
  if (waiting_.empty()) return;
  socket_->Write(std::exchange(waiting_, {}));
  if (socket_->unsent_bytes() == 0) OnDrained();
}

void ScheduledConnection::OnDrained() {
  if (over_ || std::exchange(written_, true)) return;
  if (ends_writes_) socket_->EndWrites();
  user_.OnWritten();
}

void ScheduledConnection::EndWrites() {
  if (over_ || std::exchange(ends_writes_, true)) return;
  if (written_) socket_->EndWrites();
}

void ScheduledConnection::OnBytes(absl::string_view bytes) {
  if (over_) return;
  const bool takes_more = user_.OnBytes(bytes);
  if (takes_turns()) turns_->OnResponse(bytes);
  if (!takes_more && !std::exchange(stuck_, true) && takes_turns()) turns_->OnClientStuck(true);
  SetReading();
}

void ScheduledConnection::Resume() {
  if (over_ || !std::exchange(stuck_, false)) return;
  if (takes_turns()) turns_->OnClientStuck(false);
  SetReading();
}

void ScheduledConnection::SetReading() {
  if (!over_) socket_->SetReading(!stuck_ && (!takes_turns() || turns_->reads()));
}

// No response comes, so requests need no turn.
void ScheduledConnection::OnEnded() {
  if (over_) return;
  ended_ = true;
  if (turns_ != nullptr) turns_->OnWorkerEnded();
  Pass();
  user_.OnEnded();
}

void ScheduledConnection::OnDisconnected(absl::Status why) {
  if (!over_) End(why, socket_->error_number());
}

void ScheduledConnection::End(const absl::Status& why, int error_number) {
  Stop();
  user_.OnOver(why, error_number);
}

void ScheduledConnection::Stop() {
  over_ = true;
  if (turns_ != nullptr) turns_->Stop();
}

}  // namespace sluice
