#include "lib/sharing/client_lease.h"

#include <algorithm>
#include <cstddef>

namespace sluice {
namespace {

constexpr size_t kMaxPromises = 16;  // unacknowledged promises to one client

}  // namespace

int64_t ClientLease::MostBytes() const {
  int64_t bytes = std::max(current_.bytes, acknowledged_.bytes);
  for (const Promise& promise : unacknowledged_) bytes = std::max(bytes, promise.bytes);
  return bytes;
}

int64_t ClientLease::MostSafeBytes() const {
  int64_t bytes = std::max(current_.safe_bytes, acknowledged_.safe_bytes);
  for (const Promise& promise : unacknowledged_) bytes = std::max(bytes, promise.safe_bytes);
  return bytes;
}

void ClientLease::SetBytes(int64_t bytes) {
  if (bytes != current_.bytes) ++changes_;
  Change().bytes = current_.bytes = bytes;
}

void ClientLease::SetSafeBytes(int64_t safe_bytes) {
  Change().safe_bytes = current_.safe_bytes = safe_bytes;
}

// Returns the lease that is not sent yet. If a client does not acknowledge, merges its oldest promises: it may still
// use the largest of them, so only the maximum is needed.
ClientLease::Promise& ClientLease::Change() {
  if (changed_) return unacknowledged_.back();
  changed_ = true;
  ++current_.id;
  unacknowledged_.push_back(current_);
  if (unacknowledged_.size() > kMaxPromises) {
    const Promise oldest = unacknowledged_.front();
    unacknowledged_.erase(unacknowledged_.begin());
    unacknowledged_.front().bytes = std::max(oldest.bytes, unacknowledged_.front().bytes);
    unacknowledged_.front().safe_bytes = std::max(oldest.safe_bytes, unacknowledged_.front().safe_bytes);
  }
  return unacknowledged_.back();
}

ShareLease ClientLease::Send(TimePoint now, uint64_t client) {
  changed_ = false;
  sent_ = true;
  sent_at_ = now;
  return {.client = client, .id = current_.id, .bytes = current_.bytes, .safe_bytes = current_.safe_bytes};
}

void ClientLease::Acknowledge(uint64_t id) {
  while (!unacknowledged_.empty() && unacknowledged_.front().id <= id) {
    acknowledged_ = unacknowledged_.front();
    unacknowledged_.erase(unacknowledged_.begin());
  }
}

void ClientLease::Expire() {
  // The client has received no other share. If no daemon divides the link, it therefore uses its safe share.
  current_ = {.id = current_.id + 1, .safe_bytes = MostSafeBytes()};
  acknowledged_ = {.safe_bytes = current_.safe_bytes};
  unacknowledged_.clear();
  sent_ = false;
  ++changes_;
}

}  // namespace sluice
