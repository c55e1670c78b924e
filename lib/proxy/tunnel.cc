#include "lib/proxy/tunnel.h"

#include <utility>

#include "lib/link/link_loop.h"

namespace sluice {

Tunnel::Tunnel(LinkLoop& link, int receive_buffer_bytes, Owner owner)
    : link_(link), receive_buffer_bytes_(receive_buffer_bytes), owner_(std::move(owner)) {}

Tunnel::~Tunnel() = default;

void Tunnel::LookUp(const std::string& target, Check check) {
  const auto on_resolved = [this, check = std::move(check)](absl::StatusOr<std::vector<WorkerAddress>> addresses) {
    look_up_.reset();
    OnAddresses(std::move(addresses), check);
  };
  look_up_ = link_.executor().Resolve(target, on_resolved);
}

void Tunnel::OnAddresses(absl::StatusOr<std::vector<WorkerAddress>> addresses, const Check& check) {
  if (!addresses.ok()) return owner_.on_over(absl::NotFoundError(addresses.status().message()), false);
  absl::Status why = absl::NotFoundError("the name has no address");
  std::erase_if(*addresses, [&](const WorkerAddress& address) {
    absl::Status checked = check(address);
    if (checked.ok()) return false;
    why = std::move(checked);
    return true;
  });
  if (addresses->empty()) return owner_.on_over(why, false);
  Connect(*std::move(addresses));
}

// The handshake takes no room in the schedule: a SYN-ACK is small, and one thread that reads a CONNECT for each cannot
// fill a port with them.
void Tunnel::Connect(std::vector<WorkerAddress> addresses) {
  const Executor::ConnectOptions options{
      .receive_buffer_bytes = receive_buffer_bytes_, .may_stall = true, .half_open = true};
  socket_ = std::make_unique<HappyEyeballsSocket>(link_.executor(), link_.timers(), std::move(addresses), options,
                                                  static_cast<StreamSocketEvents&>(*this));
}

void Tunnel::OnConnected() {
  open_ = true;
  owner_.on_open();
  const bool had_early = !early_.empty();
  if (had_early) socket_->Write(std::exchange(early_, {}));
  if (ends_early_) socket_->EndWrites();
  if (!had_early) return;
  // If the kernel takes all bytes at once, no OnDrained follows.
  if (socket_->unsent_bytes() == 0) owner_.on_backlog(false);
}

void Tunnel::OnBytes(absl::string_view bytes) {
  if (owner_.on_bytes != nullptr) return owner_.on_bytes(bytes);
  received_.append(bytes.data(), bytes.size());
}

void Tunnel::OnEnded() {
  ended_ = true;
  owner_.on_ended();
}

void Tunnel::OnDisconnected(absl::Status why) {
  owner_.on_over(why, open_);
}

void Tunnel::Write(std::string bytes) {
  unsent_.OnWritten(bytes.size());
  if (!open_) {
    early_.append(bytes);
    if (early_.size() > StreamSocket::kMaxBacklogBytes) owner_.on_backlog(true);
    return;
  }
  socket_->Write(std::move(bytes));
  if (socket_->congested()) owner_.on_backlog(true);
}

void Tunnel::EndWrites() {
  ends_early_ = !open_;
  if (open_) socket_->EndWrites();
}

void Tunnel::SetReading(bool reading) {
  if (open_) socket_->SetReading(reading);
}

TimePoint Tunnel::UnsentSince(TimePoint now) {
  unsent_.Look(unsent_bytes(), now);
  return unsent_.since();
}

}  // namespace sluice
