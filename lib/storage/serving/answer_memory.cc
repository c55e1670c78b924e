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
  if (absl::Status room = memory.CheckRoom(client_, bytes); !room.ok()) {
    memory.EndStalled(now);
    return room;
  }
  if (bytes == 0) return absl::OkStatus();
  memory.used_bytes_ += bytes;
  memory.client_bytes_[client_] += bytes;
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

absl::Status AnswerMemory::CheckRoom(const std::string& client, uint64_t bytes) const {
  const uint64_t left_bytes = max_bytes_ - used_bytes_;
  if (bytes > left_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("responses of ", used_bytes_, " bytes wait to be sent; at most ",
                                                     max_bytes_, " may; try again later"));
  }
  const auto found = client_bytes_.find(client);
  const uint64_t own_bytes = found != client_bytes_.end() ? found->second : 0;
  const uint64_t needed_left_bytes = (own_bytes + bytes + kMostTimesLeft - 1) / kMostTimesLeft;
  if (used_bytes_ == 0 || needed_left_bytes <= left_bytes - bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("responses of ", own_bytes, " bytes wait to be sent to this client (", client, "), and ", left_bytes,
                   " bytes are left for all clients, of ", max_bytes_, "; try again later"));
}

void AnswerMemory::GiveBack(Share& share) {
  if (share.bytes_ == 0) return;
  const auto client = client_bytes_.find(share.client_);
  client->second -= share.bytes_;
  if (client->second == 0) client_bytes_.erase(client);
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
