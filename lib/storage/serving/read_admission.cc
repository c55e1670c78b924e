#include "lib/storage/serving/read_admission.h"

namespace sluice {

ReadAdmission::Read::Read(std::shared_ptr<ReadAdmission> all, std::function<void()> end, TimePoint now)
    : all_(std::move(all)), share_(all_->memory_), end_(std::move(end)), taken_at_(now) {
  const std::lock_guard<std::mutex> lock(all_->mutex_);
  all_->reads_.push_back(*this);
}

ReadAdmission::Read::~Read() {
  const std::lock_guard<std::mutex> lock(all_->mutex_);
  all_->reads_.erase(all_->reads_.iterator_to(*this));
}

absl::Status ReadAdmission::Read::Admit(uint64_t bytes, TimePoint now) {
  absl::Status admitted = share_.Take(bytes);
  if (!admitted.ok()) all_->EndStalled(now);
  return admitted;
}

void ReadAdmission::Read::OnTaken(TimePoint now) {
  const std::lock_guard<std::mutex> lock(all_->mutex_);
  taken_at_ = now;
}

void ReadAdmission::Read::OnOver() {
  const std::lock_guard<std::mutex> lock(all_->mutex_);
  end_ = nullptr;
}

// Their memory is free when they have ended, which is later: the read that needs it now is refused, and may come again.
void ReadAdmission::EndStalled(TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Read& read : reads_) {
    if (read.end_ != nullptr && now - read.taken_at_ >= stall_timeout_) std::exchange(read.end_, nullptr)();
  }
}

}  // namespace sluice
