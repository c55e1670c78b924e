#include "lib/proxy/held_bytes.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr int64_t kMinShareBytes = 1024;

}  // namespace

void HeldBytes::SetBound(int64_t max_bytes, size_t max_holders) {
  max_bytes_ = max_bytes;
  share_bytes_ = std::max(max_bytes / static_cast<int64_t>(max_holders), kMinShareBytes);
}

void HeldBytes::Count(Holder& holder, int64_t bytes, TimePoint now) {
  if (bytes == holder.bytes_) return;
  const int64_t more_bytes = bytes - std::exchange(holder.bytes_, bytes);
  bytes_ += more_bytes;
  if (more_bytes < 0) holder.unlink();
  if (bytes > share_bytes_ && !holder.is_linked()) {
    holder.lessened_ = now;
    holders_.push_back(holder);
  }
  if (on_counted_ != nullptr) on_counted_();
}

void HeldBytes::ReleaseStuck(TimePoint since) {
  while (full() && !holders_.empty() && holders_.front().lessened_ <= since) ReleaseFirst();
}

void HeldBytes::ReleaseAbove(int64_t bytes) {
  while (bytes_ > bytes && !holders_.empty()) ReleaseFirst();
}

void HeldBytes::ReleaseFirst() {
  Holder& holder = holders_.front();
  holders_.pop_front();  // release each holder once, even if it keeps its bytes
  holder.release_();
}

}  // namespace sluice
