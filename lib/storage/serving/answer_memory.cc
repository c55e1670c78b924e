#include "lib/storage/serving/answer_memory.h"

#include "absl/strings/str_cat.h"

namespace sluice {

AnswerMemory::Share::~Share() {
  const std::lock_guard<std::mutex> lock(memory_->mutex_);
  memory_->GiveBack(*this);
}

absl::Status AnswerMemory::Share::Take(uint64_t bytes, TimePoint now) {
  AnswerMemory& memory = *memory_;
  const std::lock_guard<std::mutex> lock(memory.mutex_);
  memory.GiveBack(*this);
  if (bytes > memory.max_bytes_ - memory.used_bytes_) {
    memory.EndStalled(now);
    return absl::ResourceExhaustedError(absl::StrCat("responses of ", memory.used_bytes_,
                                                     " bytes wait to be sent; at most ", memory.max_bytes_,
                                                     " may; try again later"));
  }
  if (bytes == 0) return absl::OkStatus();
  memory.used_bytes_ += bytes;
  bytes_ = bytes;
  memory.shares_.push_back(*this);
  return absl::OkStatus();
}

void AnswerMemory::Share::OnOffered(TimePoint now) {
  const std::lock_guard<std::mutex> lock(memory_->mutex_);
  offered_at_ = now;
}

void AnswerMemory::Share::OnTaken() {
  const std::lock_guard<std::mutex> lock(memory_->mutex_);
  offered_at_ = kNotOffered;
}

void AnswerMemory::Share::OnOver() {
  const std::lock_guard<std::mutex> lock(memory_->mutex_);
  end_ = nullptr;
}

void AnswerMemory::GiveBack(Share& share) {
  if (share.bytes_ == 0) return;
  used_bytes_ -= std::exchange(share.bytes_, 0);
  shares_.erase(shares_.iterator_to(share));
}

// Their memory is free when they have ended, which is later: the call that needs it now is refused, and may come again.
void AnswerMemory::EndStalled(TimePoint now) {
  for (Share& share : shares_) {
    if (share.end_ == nullptr || share.offered_at_ == Share::kNotOffered) continue;
    if (now - share.offered_at_ >= stall_timeout_) std::exchange(share.end_, nullptr)();
  }
}

}  // namespace sluice
