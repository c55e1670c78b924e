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
#include "lib/fan_out/fan_out_core.h"
#include "lib/fan_out/fan_out_run.h"

namespace sluice {

// Hands the responses of a fan-out to the application's merge and done, where its callbacks run, and the verdicts back
// to the run. A response is decompressed there, just before its merge, so that one of them at a time is. All answers of
// a turn, or of several, go over together. There is one for each fan-out. It is used on the link's thread, except for
// the members that belong to the callbacks.
class MergeSink final : public FanOutRun::Sink, public std::enable_shared_from_this<MergeSink> {
 public:
  // Leaves the memory of `response` to the next ones unless it takes it.
  using Merge = std::function<absl::Status(size_t worker, std::string& response)>;

  struct Options {
    int64_t max_message_bytes = 64 << 20;  // decompressed
    bool keep_response_metadata = false;
    // Any thread sets it to end the merging at once, without a hop to the link's thread and back.
    std::shared_ptr<const std::atomic<bool>> stop_merging;
  };
  MergeSink(FanOutCore& core, Merge merge, FanOut::Done done, Options options);

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

  FanOutCore& core_;
  const Options options_;
  std::weak_ptr<FanOutRun> run_;
  std::vector<Item> collected_;  // in this turn

  // Used where callbacks run.
  Merge merge_;
  FanOut::Done done_;
  std::set<size_t> refused_;  // attempts with a refused message; their later messages are skipped
};

}  // namespace sluice
