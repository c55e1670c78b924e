#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/fan_out/fan_out_core.h"
#include "lib/fan_out/fan_out_logic.h"
#include "lib/link/link_core.h"

namespace sluice {

// Carries out what FanOutLogic decides for one fan-out: makes the calls over the link, and tells the logic what has
// come of them. Used by fan-outs, block reads and manifests alike. It lives until it has ended, whoever holds it; for
// the link's thread only.
class FanOutRun final : private CallOwner, public std::enable_shared_from_this<FanOutRun> {
 public:
  // One request, and the workers that can answer it, in the order in which they are tried.
  struct Ask {
    std::shared_ptr<const std::string> request;  // framed
    std::vector<size_t> workers;                 // of the WorkerSet
    size_t primary = 0;                          // whose ask it is, first among them or not
    std::optional<int64_t> response_bytes;       // of its messages; none: what the method answered before
    std::shared_ptr<const Metadata> metadata;    // null: none
  };

  // What becomes of what the workers answer. Called on the link's thread.
  class Sink {
   public:
    virtual ~Sink() = default;

    virtual void OnSent(size_t /*attempt*/) {}
    // Messages of an attempt, in order, that count as long as the verdict is OK. The sink calls FanOutRun::Accepted
    // once for each, within this call or later, in their order.
    virtual void Accept(size_t attempt, std::vector<std::string> messages) = 0;
    // The attempt has ended OK and its messages were accepted. Not OK: it is worth nothing after all.
    virtual absl::Status Complete(size_t /*attempt*/) { return absl::OkStatus(); }
    // The request of an attempt that is made now, in place of its ask's. Null: that of the ask.
    virtual std::shared_ptr<const std::string> RequestOf(size_t /*attempt*/) { return nullptr; }
    // The ask has failed for good.
    virtual void OnAskFailed(const FanOutLogic::Failure& /*failure*/) {}
    // Last of all.
    virtual void OnEnd(FanOutRun& run) = 0;
  };

  struct Spec {
    std::string path;
    bool server_streaming = false;
    std::shared_ptr<const WorkerSet> workers;
    std::vector<Ask> asks;
    std::shared_ptr<const Metadata> metadata;  // of every request; null: none
    bool gzip_requests = false;                // they were framed by FrameCompressed
    int64_t max_message_bytes = 64 << 20;
    FanOutLogic::Options limits;
    std::optional<double> hedge_after_quantile;  // of the method's times to ready, in place of limits.hedge_after
    bool keep_metadata = false;                  // of answers, for `ends`
  };

  // The core outlives it; `sink` is held until OnEnd.
  static std::shared_ptr<FanOutRun> Make(FanOutCore& core, Spec spec, std::shared_ptr<Sink> sink);
  ~FanOutRun() override;

  void Begin();  // once

  void Accepted(size_t attempt, const absl::Status& verdict);
  void Cancel(const absl::Status& why);

  const FanOutLogic::Attempt& attempt(size_t attempt) const { return logic_.attempt(attempt); }
  size_t PrimaryOf(size_t attempt) const { return PrimaryOfAsk(logic_.attempt(attempt).ask); }
  size_t PrimaryOfAsk(size_t ask) const { return spec_.asks[ask].primary; }
  size_t attempts() const { return logic_.attempts(); }
  const std::string& address(size_t worker) const { return (*spec_.workers->addresses)[worker]; }
  const FanOutLogic::Result& result() const { return logic_.result(); }  // at its end
  bool refused() const { return refused_; }                              // the queue of the link had no room
  int64_t accepted_bytes() const { return accepted_bytes_; }
  TimePoint started() const { return started_; }
  const RpcEnd& end(size_t attempt) const { return attempts_[attempt].end; }
  // "worker 3 (10.0.0.3:7000): no such file"
  absl::Status Describe(const FanOutLogic::Failure& failure) const;
  std::string StatusDetailsOf(const FanOutLogic::Failure& failure) const;

 private:
  struct AttemptState {
    WireCall* call = nullptr;            // until it has ended
    std::deque<std::string> messages;    // neither accepted nor dropped
    std::deque<int64_t> accepted_bytes;  // of messages whose verdict is to come
    int64_t bytes = 0;                   // accepted
    bool sent = false;
    bool corrupt = false;  // its sink found so at its end
    bool counted = false;
    RpcEnd end;
  };

  FanOutRun(FanOutCore& core, Spec spec, std::shared_ptr<Sink> sink);
  template <class Event>
  void Drive(Event event);
  void Apply(const FanOutLogic::Action& action);
  void TellFailures();
  WireCall& Launch(size_t attempt);
  void SubmitAll(const std::vector<size_t>& attempts);
  void SubmitOne(size_t attempt);
  void Accept(size_t attempt, size_t messages);
  void CountEnded(size_t attempt);
  absl::Status WhyCancelled() const;
  static SruOutcome OutcomeOf(const AttemptState& state, FanOutLogic::AttemptOutcome outcome);
  void ArmTimer();
  void End();

  // CallOwner; the tag is the attempt.
  void OnSent(size_t attempt) override;
  void OnReady(size_t attempt, std::chrono::nanoseconds ready_after) override;
  void OnMessage(size_t attempt, std::string message) override;
  void OnEnded(size_t attempt, RpcEnd end) override;

  FanOutCore& core_;
  const Spec spec_;
  std::shared_ptr<Sink> sink_;  // null: it has ended
  MethodHistory& history_;
  const TimePoint started_;
  FanOutLogic logic_;
  std::vector<FanOutLogic::Action> actions_;
  bool applying_ = false;
  std::vector<AttemptState> attempts_;
  std::optional<BlockId> block_;
  TimerQueue::Id timer_;
  size_t failures_told_ = 0;   // to the sink
  size_t hedges_refused_ = 0;  // that were counted
  bool refused_ = false;
  int64_t accepted_bytes_ = 0;
};

}  // namespace sluice
