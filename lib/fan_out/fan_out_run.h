#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/fan_out/fan_out_logic.h"
#include "lib/fan_out/fan_out_state.h"
#include "lib/fan_out/kept_messages.h"
#include "lib/link/link_loop.h"
#include "lib/link/wire_call.h"

namespace sluice {

// Carries out the decisions of FanOutLogic for one fan-out: it makes the calls over the link, and reports their events
// to the logic. Fan-outs, block reads and manifests use it. There is one for each fan-out. The state keeps it alive
// until it has ended. Used on the link's thread only.
class FanOutRun final : private CallOwner, public std::enable_shared_from_this<FanOutRun> {
 public:
  // One request, and the workers that can answer it, in the order in which they are tried.
  struct Ask {
    std::shared_ptr<const std::string> request;  // framed
    std::vector<size_t> workers;                 // indices in the WorkerSet
    size_t primary = 0;                          // the worker that the ask belongs to; it need not be tried first
    std::optional<int64_t> response_bytes;       // of all its messages; default: from the history of the method
    std::shared_ptr<const Metadata> metadata;    // may be null
  };

  // Receives the responses of the workers. Called on the link's thread.
  class Sink {
   public:
    virtual ~Sink() = default;

    virtual void OnSent(size_t /*attempt*/) {}
    // Takes messages of an attempt, in order, and still compressed: the sink decompresses them. For each message, the
    // sink calls FanOutRun::Accepted once, within this call or later, in the same order. A message counts if the
    // verdict is OK.
    virtual void Accept(size_t attempt, std::vector<WireMessage> messages) = 0;
    // The attempt has ended OK. A status other than OK refuses its response.
    virtual absl::Status Complete(size_t /*attempt*/) { return absl::OkStatus(); }
    // Returns the request of an attempt that is made now. Null means the request of its ask.
    virtual std::shared_ptr<const std::string> RequestOf(size_t /*attempt*/) { return nullptr; }
    // The ask has failed permanently.
    virtual void OnAskFailed(const FanOutLogic::Failure& /*failure*/) {}
    // The run has ended. No call follows.
    virtual void OnEnd(FanOutRun& run) = 0;
  };

  struct Spec {
    std::string path;
    bool server_streaming = false;
    bool may_idle = false;     // streams may stay open between messages
    size_t traffic_class = 0;  // index
    std::shared_ptr<const WorkerSet> workers;
    std::vector<Ask> asks;
    std::shared_ptr<const Metadata> metadata;  // sent with every request; may be null
    bool gzip_requests = false;                // the requests were framed by FrameCompressed
    int64_t max_message_bytes = 64 << 20;      // on the wire, before decompression
    // Counts the bytes of messages that the sink has not settled. Null: the bytes are not bounded.
    std::shared_ptr<CallbackMemory::Account> memory;
    FanOutLogic::Options limits;
    std::optional<double> hedge_after_quantile;  // of the method's times to ready; replaces limits.hedge_after
    bool keep_metadata = false;                  // keeps the metadata of responses in `end`
  };

  // The state must outlive the run. The run holds `sink` until OnEnd.
  static std::shared_ptr<FanOutRun> Make(FanOutState& state, Spec spec, std::shared_ptr<Sink> sink);

  void Begin();  // once

  size_t position() const { return position_; }  // in the state's list of runs
  void set_position(size_t position) { position_ = position; }

  // `bytes` is the size of the message, decompressed.
  void Accepted(size_t attempt, const absl::Status& verdict, size_t bytes);
  void Cancel(const absl::Status& why);

  const FanOutLogic& logic() const { return logic_; }
  size_t PrimaryOf(size_t attempt) const { return PrimaryOfAsk(logic_.attempt(attempt).ask); }
  size_t PrimaryOfAsk(size_t ask) const { return spec_.asks[ask].primary; }
  const std::string& address(size_t worker) const { return (*spec_.workers->addresses)[worker]; }
  const WorkerSet& workers() const { return *spec_.workers; }
  bool refused() const { return refused_; }  // the queue of the link was full
  int64_t accepted_bytes() const { return accepted_bytes_; }
  TimePoint started() const { return started_; }
  const RpcEnd& end(size_t attempt) const { return attempts_[attempt].end; }
  bool cancelled(size_t attempt) const { return attempts_[attempt].cancelled; }  // by this process
  // "worker 3 (10.0.0.3:7000): no such file"
  absl::Status Describe(const FanOutLogic::Failure& failure) const;
  std::string StatusDetailsOf(const FanOutLogic::Failure& failure) const;

 private:
  struct AttemptState {
    ScheduledStream* call = nullptr;  // null after its end
    KeptMessages messages;
    int64_t bytes = 0;  // accepted bytes, on the wire
    bool sent = false;
    TimePoint began_at;
    TimePoint sent_at;                                    // valid if it was sent
    TimePoint ended_at;                                   // valid if it has ended
    std::optional<std::chrono::nanoseconds> ready_after;  // it was sent
    bool cancelled = false;                               // by this process
    bool expired = false;                                 // the link ended it before it was sent
    bool corrupt = false;                                 // the sink refused it at its end
    bool counted = false;
    RpcEnd end;

    CallOutcome OutcomeOf(AttemptOutcome outcome) const;
  };

  FanOutRun(FanOutState& state, Spec spec, std::shared_ptr<Sink> sink);
  template <class Event>
  void Drive(Event event);
  void Apply(const FanOutAction& action);
  void TellFailures();
  ScheduledStream& Launch(size_t attempt);
  void SubmitAll(const std::vector<size_t>& attempts);
  void SubmitOne(size_t attempt);
  void CountEnded(size_t attempt);
  absl::Status WhyCancelled() const;
  void JudgeWorker(const AttemptState& state, const Attempt& made, CallOutcome outcome) const;
  void Record(size_t attempt, CallOutcome outcome) const;
  void ArmTimer();
  void End();

  // CallOwner. The tag is the attempt.
  void OnSent(size_t attempt) override;
  void OnReady(size_t attempt, std::chrono::nanoseconds ready_after) override;
  void OnHeld(size_t attempt, HeldFor held_for) override;
  void OnMessage(size_t attempt, WireMessage message) override;
  void OnEnded(size_t attempt, RpcEnd end) override;

  FanOutState& state_;
  const Spec spec_;
  std::shared_ptr<Sink> sink_;  // null after the end
  MethodHistory& history_;
  const TimePoint started_;
  FanOutLogic logic_;
  FanOutActions actions_;
  bool applying_ = false;
  std::vector<AttemptState> attempts_;
  size_t position_ = 0;
  std::optional<BlockId> block_;
  TimerQueue::Id timer_;
  size_t failures_told_ = 0;   // failures that were reported to the sink
  size_t hedges_refused_ = 0;  // refused hedges that are in the metrics
  bool refused_ = false;
  int64_t accepted_bytes_ = 0;
};

}  // namespace sluice
