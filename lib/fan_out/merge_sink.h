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

// Hands the answers of a fan-out to the application's merge and done, where its callbacks run, and the verdicts back to
// the run. All answers of a turn go over in one go, or those of several turns. One a fan-out; what is not said to be the callbacks' is for the
// link's thread only.
class MergeSink final : public FanOutRun::Sink, public std::enable_shared_from_this<MergeSink> {
 public:
  using Merge = std::function<absl::Status(size_t worker, std::string response)>;

  // `stop_merging` is set, on any thread, when nothing more is to be merged: at once, and not after a hop to the link's
  // thread and back.
  MergeSink(FanOutCore& core, Merge merge, FanOut::Done done, bool keep_response_metadata,
            std::shared_ptr<const std::atomic<bool>> stop_merging);

  void SetRun(std::shared_ptr<FanOutRun> run) { run_ = std::move(run); }

  void Accept(size_t attempt, std::vector<std::string> messages) override;
  void OnEnd(FanOutRun& run) override;

 private:
  struct Item {
    size_t attempt = 0;
    size_t primary = 0;
    size_t worker = 0;
    std::string message;
    absl::Status verdict;
  };

  void HandOver();
  void MergeAll(std::vector<Item>& items);
  void Settle(const std::vector<Item>& items);
  FanOutResult ResultOf(const FanOutRun& run) const;

  FanOutCore& core_;
  const bool keep_response_metadata_;
  const std::shared_ptr<const std::atomic<bool>> stop_merging_;
  std::weak_ptr<FanOutRun> run_;
  std::vector<Item> collected_;  // in this turn

  // The callbacks'.
  Merge merge_;
  FanOut::Done done_;
  std::set<size_t> refused_;  // attempts of which a message was refused: what follows it is worth nothing
};

}  // namespace sluice
