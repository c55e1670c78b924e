#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sluice/fan_out.h"

#include "absl/status/status.h"
#include "lib/fan_out/fan_out_run.h"
#include "lib/fan_out/fan_out_state.h"

namespace sluice {

// Passes the responses of a fan-out to the application's merge and done, where its callbacks run, and passes the
// verdicts back to the run. It decompresses a response there, just before its merge, so that only one decompressed
// response exists at a time. All responses of one or several turns are passed together. There is one for each fan-out.
// Used on the link's thread, except for the members that belong to the callbacks.
class MergeSink final : public FanOutRun::Sink, public std::enable_shared_from_this<MergeSink> {
 public:
  // The memory of `response` is used for the next responses unless the function takes it.
  using Merge = std::function<absl::Status(size_t worker, std::string& response)>;

  struct Options {
    int64_t max_message_bytes = 64 << 20;  // decompressed
    bool keep_response_metadata = false;
    // Any thread may set it to stop merging at once, before the link's thread has cancelled the fan-out.
    std::shared_ptr<const std::atomic<bool>> stop_merging;
  };
  MergeSink(FanOutState& state, Merge merge, FanOut::Done done, Options options);

  void SetRun(std::shared_ptr<FanOutRun> run) { run_ = std::move(run); }

  void Accept(size_t attempt, std::vector<WireMessage> messages) override;
  void OnEnd(FanOutRun& run) override;

 private:
  struct Item {
    size_t attempt = 0;
    size_t primary = 0;
    size_t worker = 0;
    WireMessage message;
    size_t bytes = 0;  // decompressed
    absl::Status verdict;
  };

  void HandOver();
  void MergeAll(std::vector<Item>& items);
  absl::Status MergeOne(Item& item);
  void Settle(std::vector<Item>& items);
  FanOutResult ResultOf(const FanOutRun& run) const;

  FanOutState& state_;
  const Options options_;
  std::weak_ptr<FanOutRun> run_;
  std::vector<Item> collected_;  // the items of this turn

  // Used where callbacks run.
  Merge merge_;
  FanOut::Done done_;
  std::set<size_t> refused_;  // attempts with a refused message; their later messages are skipped
};

}  // namespace sluice
