#include "lib/blocks/reader_core.h"

#include <utility>

#include "lib/blocks/sru_ranges.h"

namespace sluice {
namespace {

// A manifest takes 4 bytes for each SRU of its file.
constexpr size_t kMaxLayouts = 256;

}  // namespace

absl::StatusCode ReaderCode(absl::StatusCode worker_code) {
  switch (worker_code) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kDataLoss:
      return worker_code;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

void ReaderGate::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  mutex_.Await(absl::Condition(this, &ReaderGate::Empty));
}

bool ReaderGate::Enter() {
  absl::MutexLock lock(&mutex_);
  if (closed_) return false;
  ++passes_;
  return true;
}

void ReaderGate::Leave() {
  absl::MutexLock lock(&mutex_);
  --passes_;
}

ReaderCore::ReaderCore(std::shared_ptr<Link> link, WorkerChannels channels, BlockReader::Options options)
    : fan_out_(std::move(link), std::move(channels)), options_(std::move(options)) {}

ReaderCore::~ReaderCore() {
  gate_->Close();
  fan_out_.Close();
}

int64_t ReaderCore::RangeBytesFor(int64_t sru_bytes) {
  return RangeBytes(link().options(), link().State().plan_bytes, sru_bytes);
}

std::shared_ptr<const StripeLayout> ReaderCore::FindLayout(const std::string& file) const {
  absl::MutexLock lock(&mutex_);
  const auto found = layouts_.find(file);
  return found == layouts_.end() ? nullptr : found->second;
}

void ReaderCore::KeepLayout(const std::string& file, std::shared_ptr<const StripeLayout> layout) {
  absl::MutexLock lock(&mutex_);
  if (layouts_.size() >= kMaxLayouts) layouts_.clear();
  layouts_[file] = std::move(layout);
}

void ReaderCore::ForgetLayout(const std::string& file) {
  absl::MutexLock lock(&mutex_);
  layouts_.erase(file);
}

}  // namespace sluice
