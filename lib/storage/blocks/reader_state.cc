#include "lib/storage/blocks/reader_state.h"

#include <utility>

#include "lib/storage/blocks/file_read.h"

namespace sluice {
namespace {

constexpr uint64_t kLayoutBytes = 64 << 20;

}  // namespace

absl::StatusCode ReaderCode(absl::StatusCode worker_code) {
  switch (worker_code) {
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

ReaderState::ReaderState(LinkLoop& link, Callbacks& callbacks, std::shared_ptr<TlsContext> tls,
                         BlockReader::Options options)
    : options_(std::move(options)),
      fan_out_(link, callbacks, std::move(tls)),
      workers_(fan_out_.SetOf(std::make_shared<const std::vector<std::string>>(options_.workers))),
      layouts_(kLayoutBytes) {
  fan_out_.SetOnAccess(options_.on_access);
  fan_out_.SetWorkers(workers_->addresses);
}

ReaderState::~ReaderState() = default;

FanOutRun::Spec ReaderState::SpecFor(std::string path, TimePoint deadline) const {
  FanOutRun::Spec spec{.path = std::move(path), .workers = workers_};
  spec.limits.deadline = deadline;
  spec.limits.attempt_timeout = options_.sru_timeout;
  return spec;
}

void ReaderState::ConnectAll() {
  connects_all_ = true;
  for (const std::shared_ptr<Worker>& worker : workers_->workers) worker->Connect();
}

// A layout in transit may be stale when it arrives, so no later read may join its fetch.
void ReaderState::ForgetLayout(const std::string& file) {
  layouts_.Forget(file);
  fetches_.erase(file);
}

std::shared_ptr<ManifestFetch> ReaderState::FetchLayout(const std::string& file,
                                                        std::shared_ptr<const Metadata> metadata,
                                                        ManifestFetch::Waiter& waiter) {
  std::shared_ptr<ManifestFetch>& known = fetches_[file];
  const bool first = known == nullptr;
  if (first) known = std::make_shared<ManifestFetch>(*this, file, std::move(metadata));
  const std::shared_ptr<ManifestFetch> fetch = known;
  fetch->Join(waiter);
  if (first) fetch->Start();
  return fetch;
}

void ReaderState::OnFetched(const ManifestFetch& fetch, std::shared_ptr<const StripeLayout> layout) {
  const auto known = fetches_.find(fetch.file());
  if (known == fetches_.end() || known->second.get() != &fetch) return;
  if (layout != nullptr) layouts_.Keep(fetch.file(), std::move(layout));
  fetches_.erase(known);
}

void ReaderState::Enter(std::shared_ptr<FileRead> read) {
  FileRead* const key = read.get();
  reads_.emplace(key, std::move(read));
}

void ReaderState::Leave(FileRead& read) {
  reads_.erase(&read);
}

void ReaderState::PumpLater(FileRead& read) {
  if (fan_out_.closing()) return;
  if (to_pump_.empty()) link().AtEndOfTurn([this] { PumpAll(); });
  to_pump_.push_back(read.shared_from_this());
}

// A pump may queue further reads; these run in a call of their own.
void ReaderState::PumpAll() {
  const auto reads = std::exchange(to_pump_, {});
  for (const std::shared_ptr<FileRead>& read : reads) read->Pump();
}

void ReaderState::Close(std::function<void()> on_idle) {
  const absl::Status why = absl::CancelledError("the reader is gone");
  const auto reads = std::exchange(reads_, {});
  for (const auto& [key, read] : reads) read->Cancel(why);
  fan_out_.Close(why, std::move(on_idle));
}

}  // namespace sluice
