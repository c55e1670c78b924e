#include "tools/sluice_calibrate/probe_loop.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_unary_call.h>

#include "absl/strings/str_cat.h"
#include "tools/sluice_calibrate/wire_counters.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kAnswerPatience = std::chrono::seconds(10);  // several retransmission timeouts
// Much longer than a pause of this host or the burst of a token bucket: both make a short window faster than the link.
constexpr auto kWindow = std::chrono::milliseconds(40);
constexpr auto kCheckInterval = std::chrono::milliseconds(20);  // for `interrupted`

struct Call {
  grpc::ClientContext context;
  v1::ProbeResponse response;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ProbeResponse>> reader;
  Clock::time_point started;
};

// Returns a time of gRPC's type, of a clock that does not jump.
gpr_timespec After(std::chrono::nanoseconds time) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(time.count(), GPR_TIMESPAN));
}

// One loop, from its first request to its last response.
class ProbeLoop {
 public:
  ProbeLoop(const ProbeConnections& connections, const ClosedLoop& loop, SocketDiag& socket_diag)
      : connections_(connections), loop_(loop), wire_(socket_diag), calls_(connections.size()) {
    request_.set_payload_bytes(static_cast<uint32_t>(loop.payload_bytes));
    for (size_t i = 0; i < connections.size(); ++i) idle_.push_back(i);
  }

  // Cancels the calls in progress, since gRPC keeps pointers to them.
  ~ProbeLoop() {
    for (const auto& call : calls_) {
      if (call) call->context.TryCancel();
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
  }

  absl::StatusOr<ProbeLoopResult> Run(const std::function<bool()>& interrupted) {
    if (absl::Status status = wire_.Read().status(); !status.ok()) return status;
    next_place_ = Clock::now();
    Fill();
    while (under_way_ > 0) {
      void* tag = nullptr;
      bool ok = false;
      const auto next = queue_.AsyncNext(&tag, &ok, After(TimeUntilNextPlace()));
      if (Clock::now() >= next_check_) {
        if (interrupted()) return absl::CancelledError("interrupted");
        next_check_ = Clock::now() + kCheckInterval;
      }
      Fill();
      if (next != grpc::CompletionQueue::GOT_EVENT) continue;
      absl::Status status = OnAnswer(static_cast<size_t>(reinterpret_cast<uintptr_t>(tag)));
      if (!status.ok()) return status;
    }
    return Finish();
  }

 private:
  // Sends a request on the connection that has been idle longest. Consecutive requests therefore go to different
  // workers.
  void Ask() {
    const size_t connection = idle_.front();
    idle_.pop_front();
    calls_[connection] = std::make_unique<Call>();
    Call& call = *calls_[connection];
    call.context.set_deadline(std::chrono::system_clock::now() + kAnswerPatience);
    call.started = Clock::now();
    call.reader = connections_.stub(connection).AsyncProbe(&call.context, request_, &queue_);
    call.reader->Finish(&call.response, &call.status, reinterpret_cast<void*>(connection));
    ++under_way_;
  }

  absl::Status OnAnswer(size_t connection) {
    const auto now = Clock::now();
    const std::unique_ptr<Call> call = std::move(calls_[connection]);
    --under_way_;
    idle_.push_back(connection);
    if (!call->status.ok()) return connections_.Explain(connection, call->status);
    ++answers_;
    result_.answer_times.push_back(absl::FromChrono(now - call->started));
    if (IsFull() && now >= end_) return absl::OkStatus();
    Ask();
    return IsFull() && now >= window_end_ ? TakeWindow() : absl::OkStatus();
  }

  bool IsFull() const { return places_ == loop_.in_flight; }

  std::chrono::nanoseconds TimeUntilNextPlace() const {
    if (IsFull()) return kCheckInterval;
    return std::clamp<std::chrono::nanoseconds>(next_place_ - Clock::now(), std::chrono::nanoseconds(0),
                                                kCheckInterval);
  }

  // Fills the places one after the other. Responses that are requested together arrive together every time: a burst. If
  // round trips grow tenfold at once, TCP also considers the last packets of responses lost, and sends them again in
  // addition to the bytes in flight.
  void Fill() {
    while (!IsFull() && Clock::now() >= next_place_) {
      Ask();
      ++places_;
      next_place_ += absl::ToChronoNanoseconds(loop_.fill_interval);
      end_ = Clock::now() + absl::ToChronoNanoseconds(loop_.duration);
    }
  }

  absl::Status TakeWindow() {
    const auto arrived = wire_.Read();
    if (!arrived.ok()) return arrived.status();
    wire_bytes_ += arrived->bytes;
    if (window_end_ != Clock::time_point()) {
      result_.sample.windows.push_back({arrived->bytes, absl::FromChrono(arrived->time - window_begin_)});
    }
    window_begin_ = arrived->time;
    window_end_ = arrived->time + kWindow;
    return absl::OkStatus();
  }

  absl::StatusOr<ProbeLoopResult> Finish() {
    const auto arrived = wire_.Read();
    if (!arrived.ok()) return arrived.status();
    wire_bytes_ += arrived->bytes;
    if (answers_ > 0) result_.sample.in_flight_bytes = loop_.in_flight * wire_bytes_ / answers_;
    return std::move(result_);
  }

  const ProbeConnections& connections_;
  const ClosedLoop& loop_;
  WireCounters wire_;
  v1::ProbeRequest request_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<Call>> calls_;  // by connection; null: idle
  std::deque<size_t> idle_;
  int under_way_ = 0;
  int places_ = 0;  // filled places; each requests its next response when one has arrived
  Clock::time_point next_place_;
  int64_t answers_ = 0;
  int64_t wire_bytes_ = 0;
  Clock::time_point end_;
  Clock::time_point next_check_;
  Clock::time_point window_begin_;
  Clock::time_point window_end_;  // 0: the first window has not begun
  ProbeLoopResult result_;
};

}  // namespace

absl::StatusOr<ProbeLoopResult> RunProbeLoop(const ProbeConnections& connections, const ClosedLoop& loop,
                                             SocketDiag& socket_diag, const std::function<bool()>& interrupted) {
  if (loop.in_flight < 1 || static_cast<size_t>(loop.in_flight) > connections.size()) {
    return absl::InvalidArgumentError(absl::StrCat("in_flight is ", loop.in_flight, "; it must be from 1 to ",
                                                   connections.size(), ", the number of connections"));
  }
  return ProbeLoop(connections, loop, socket_diag).Run(interrupted);
}

}  // namespace sluice
