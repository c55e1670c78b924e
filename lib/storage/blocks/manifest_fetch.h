#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/fan_out/fan_out_run.h"
#include "lib/storage/blocks/manifest_search.h"
#include "lib/storage/stripe/stripe_layout.h"

namespace sluice {

class ReaderState;

// Fetches the manifest of a file from the first worker with a valid one, once for all reads that need it at the same
// time. It asks one worker after the other (ManifestSearch) while there are workers and time. The first response has
// the size and the first MiB, which is the whole of most manifests. A larger manifest needs a second request. It lives
// until it has ended. Used on the link's thread only.
class ManifestFetch final : public FanOutRun::Sink, public std::enable_shared_from_this<ManifestFetch> {
 public:
  using Found = absl::StatusOr<std::shared_ptr<const StripeLayout>>;

  class Waiter {
   public:
    // Called once. NotFound if no worker can have the file, FailedPrecondition if the file is striped over
    // more workers than the reader has.
    virtual void OnLayout(const Found& found) = 0;

   protected:
    ~Waiter() = default;
  };

  // `metadata` may be null.
  ManifestFetch(ReaderState& state, std::string file, std::shared_ptr<const Metadata> metadata);

  const std::string& file() const { return file_; }
  void Join(Waiter& waiter) { waiters_.push_back(&waiter); }
  void Leave(Waiter& waiter);  // the last one to leave cancels the fetch
  void Start();                // call it once

 private:
  // FanOutRun::Sink.
  void Accept(size_t attempt, std::vector<WireMessage> messages) override;
  std::shared_ptr<const std::string> RequestOf(size_t attempt) override;
  void OnEnd(FanOutRun& run) override;

  struct Range {
    uint64_t offset = 0;
    uint32_t length = 0;
  };
  std::vector<size_t> NextCandidates(size_t first);
  void AskForBeginning();
  void AskForRest();
  void Run(std::vector<Range> ranges, const std::vector<size_t>& workers);
  std::shared_ptr<const std::string> RequestFor(const Range& range, size_t worker) const;
  absl::Status Store(const Range& range, size_t worker, const std::string& message);
  absl::Status Decode();
  void NoteFailures(const FanOutRun& run);
  void NoteFailure(size_t worker, const absl::Status& why);
  void TryOtherWorkers();
  absl::Status Failure() const;
  void Finish(Found found);

  ReaderState& state_;
  const std::string file_;
  const std::shared_ptr<const Metadata> metadata_;
  TimePoint deadline_;
  std::vector<Waiter*> waiters_;

  ManifestSearch search_;
  std::vector<size_t> candidates_;           // workers that the search has returned
  size_t next_candidate_ = 0;                // the first candidate that was not asked for the beginning
  std::weak_ptr<FanOutRun> run_;             // the current run
  std::vector<Range> ranges_;                // the ranges of the run's asks
  std::map<size_t, absl::Status> verdicts_;  // the reasons of refused attempts of the run
  bool begun_ = false;                       // the beginning and the size have arrived, from `source_`
  size_t source_ = 0;
  std::string stored_;
  std::shared_ptr<const StripeLayout> layout_;
  absl::Status failure_;  // the first error of a worker other than NotFound
  std::string not_found_;
};

}  // namespace sluice
