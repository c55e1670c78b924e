#include "lib/fan_out/kept_messages.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

int64_t SizeOf(const WireMessage& message) {
  return static_cast<int64_t>(message.bytes.size());
}

int64_t CountedBytes(int64_t message_bytes) {
  return std::max(message_bytes, CallbackMemory::kMinMessageBytes);
}

}  // namespace

void KeptMessages::CountIn(CallbackMemory::Account* memory) {
  if (memory == memory_) return;
  memory_ = memory;
  for (const WireMessage& message : kept_) memory_->Hold(CountedBytes(SizeOf(message)));
}

void KeptMessages::Add(WireMessage message) {
  if (memory_ != nullptr) memory_->Hold(CountedBytes(SizeOf(message)));
  kept_.push_back(std::move(message));
}

std::vector<WireMessage> KeptMessages::Accept(size_t messages) {
  std::vector<WireMessage> accepted;
  accepted.reserve(messages);
  for (; messages > 0; --messages) {
    accepted_bytes_.push_back(SizeOf(kept_.front()));
    accepted.push_back(std::move(kept_.front()));
    kept_.pop_front();
  }
  return accepted;
}

void KeptMessages::Drop(size_t messages) {
  for (; messages > 0; --messages) {
    Release(SizeOf(kept_.front()));
    kept_.pop_front();
  }
}

int64_t KeptMessages::Settle() {
  const int64_t bytes = accepted_bytes_.front();
  accepted_bytes_.pop_front();
  Release(bytes);
  return bytes;
}

void KeptMessages::Release(int64_t bytes) {
  if (memory_ != nullptr) memory_->Release(CountedBytes(bytes));
}

}  // namespace sluice
