#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/blocks/reader_core.h"
#include "lib/stripe/stripe_layout.h"

namespace sluice {

// Fetches the manifest of a file from the first worker that has a good one, in ranges through the schedule: its size is
// not known beforehand, so the first range is small and tells. One a fetch; it lives until it has called back.
class ManifestFetch : public std::enable_shared_from_this<ManifestFetch> {
 public:
  using Callback = std::function<void(absl::StatusOr<std::shared_ptr<const StripeLayout>>)>;

  // Calls back once, on any thread. NotFound: no worker asked knows the file. FailedPrecondition: it is striped over
  // more workers than the reader has.
  static std::shared_ptr<ManifestFetch> Start(ReaderCore& core, std::string file, TimePoint deadline,
                                              Callback callback);

  // Calls back with Cancelled, unless it has called back before. Thread-safe.
  void Cancel();

 private:
  ManifestFetch(ReaderCore& core, std::string file, TimePoint deadline, Callback callback);
  void AskWorker();
  void AskRanges(uint64_t begin, uint64_t end);
  absl::Status OnAnswer(size_t tag, absl::StatusOr<grpc::ByteBuffer> answer);
  absl::Status Store(uint64_t offset, const std::string& data, uint64_t total_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnEnd();
  void OnWorkerFailed(const absl::Status& why);
  absl::Status TooManyWorkers(uint32_t workers) const;
  absl::StatusOr<std::shared_ptr<const StripeLayout>> Decode();

  ReaderCore& core_;
  const std::string file_;
  const TimePoint deadline_;
  const Callback callback_;
  const uint64_t range_bytes_;
  uint32_t worker_ = 0;
  absl::Status failure_;  // the first of a worker, other than NotFound

  absl::Mutex mutex_;  // answers come on any thread
  std::string stored_ ABSL_GUARDED_BY(mutex_);
  bool size_known_ ABSL_GUARDED_BY(mutex_) = false;
  bool first_range_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  int round_ ABSL_GUARDED_BY(mutex_) = 0;                   // of requests
  std::weak_ptr<CallGroup> group_ ABSL_GUARDED_BY(mutex_);  // the one under way
};

}  // namespace sluice
