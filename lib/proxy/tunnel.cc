#include "lib/proxy/tunnel.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {

Tunnel::Tunnel(Executor& executor, const std::string& target, int receive_buffer_bytes, Check check, Owner owner)
    : executor_(executor),
      receive_buffer_bytes_(receive_buffer_bytes),
      check_(std::move(check)),
      owner_(std::move(owner)) {
  look_up_ = executor_.Resolve(target, [this](absl::StatusOr<std::vector<WorkerAddress>> addresses) {
    look_up_.reset();
    if (!addresses.ok()) return owner_.on_over(addresses.status(), false);
    addresses_ = *std::move(addresses);
    TryNext(absl::UnavailableError("the name has no address"));
  });
}

Tunnel::~Tunnel() = default;

void Tunnel::TryNext(absl::Status why) {
  while (next_ < addresses_.size()) {
    const WorkerAddress& address = addresses_[next_++];
    absl::Status checked = check_(address);
    if (checked.ok()) {
      failed_ = std::move(socket_);
      socket_ = executor_.Connect(address, {.receive_buffer_bytes = receive_buffer_bytes_, .may_stall = true}, *this);
      return;
    }
    why = std::move(checked);
  }
  owner_.on_over(why, false);
}

void Tunnel::OnConnected() {
  open_ = true;
  failed_.reset();
  owner_.on_open();
  if (early_.empty()) return;
  socket_->Write(std::exchange(early_, {}));
  // If the kernel takes all bytes at once, no OnDrained follows.
  if (socket_->unsent_bytes() == 0) owner_.on_backlog(false);
}

void Tunnel::OnDisconnected(absl::Status why) {
  if (!open_) return TryNext(std::move(why));
  owner_.on_over(why, true);
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

void Tunnel::SetReading(bool reading) {
  if (open_) socket_->SetReading(reading);
}

TimePoint Tunnel::UnsentSince(TimePoint now) {
  unsent_.Look(unsent_bytes(), now);
  return unsent_.since();
}

}  // namespace sluice
