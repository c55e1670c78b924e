#include "lib/grpc_wire/message_buffers.h"

#include <bit>
#include <utility>

namespace sluice {

std::string MessageBuffers::Take(size_t bytes) {
  if (bytes < kMinBytes || kept_bytes_ == 0) return std::string();
  const auto least = static_cast<size_t>(std::bit_width(bytes));
  for (size_t bits = least; bits <= least + 1 && bits < kClasses; ++bits) {
    std::vector<std::string>& kept = kept_[bits];
    if (kept.empty() || kept.back().capacity() < bytes) continue;
    std::string buffer = std::move(kept.back());
    kept.pop_back();
    kept_bytes_ -= buffer.capacity();
    return buffer;
  }
  return std::string();
}

void MessageBuffers::Give(std::string message) {
  const size_t bytes = message.capacity();
  if (bytes < kMinBytes || bytes > kMostBytes) return;
  if (kept_bytes_ + bytes > kMostBytes) {
    kept_ = {};
    kept_bytes_ = 0;
  }
  message.clear();
  kept_[static_cast<size_t>(std::bit_width(bytes))].push_back(std::move(message));
  kept_bytes_ += bytes;
}

}  // namespace sluice
