#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"
#include "lib/link/scheduled_stream.h"
#include "lib/proxy/forwarded_head.h"
#include "lib/proxy/held_bytes.h"
#include "lib/proxy/target.h"
#include "lib/scheduling/attempt_time.h"

namespace sluice {

class ClientConnection;
class ProxyCore;
class WorkerStream;

// Why calls end whose clients do not read, where answers of more than `max_held_bytes` are held.
absl::Status StuckClients(int64_t max_held_bytes);

// One call of a client, from its first header to its end on both sides. The request passes as it comes. The answer
// comes by the schedule of the link, message by message, and only while the client takes it. Held by the client's
// connection while its stream is open, and by its WorkerStream. Used on the link's thread only.
class ProxiedCall final : public StreamEvents, public TargetWaiter, public std::enable_shared_from_this<ProxiedCall> {
 public:
  // The client calls OnClosed before it goes. From then on the call does nothing, whatever the worker still says; the
  // core may be gone.
  ProxiedCall(ProxyCore& proxy, ClientConnection& client, int32_t stream);

  // The client's side.
  void OnHeaders(HeaderList headers, bool end_stream) override;
  void OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) override;
  void OnWritable() override { OnClientTook(); }
  void OnClosed(StreamEnd end) override;
  // The client has taken bytes, or there is more room for those that it does not take.
  void OnClientTook();

  // The worker's side.
  ScheduledStream::Opening BeginRequest(TimePoint now);
  bool may_begin_again() const { return replayable_; }
  void OnRequestSent();
  void OnRequestTaken();
  void OnResponseHeld(HeldFor held_for);
  bool TakeResponseHeaders(const HeaderList& headers, bool end_stream);
  bool TakeResponseData(absl::string_view bytes, bool end_stream);
  int64_t WantedBytes() const;
  void OnAnswerAsked() { CountAnswer(); }
  bool Conclude(StreamEnd end, const absl::Status& why);
  void OnWorkerEnded(const absl::Status& why);

  // Ends the call with a status that the client gets.
  void Fail(const absl::Status& reason);
  // The same for a client that does not read: the stream is reset, too.
  void FailStuck(const absl::Status& why);
  int32_t stream() const { return stream_; }
  // Since when the client takes nothing though there is something for it. TimePoint::max(): it does.
  TimePoint stuck_since() const { return stuck_since_; }
  TimePoint deadline() const { return deadline_; }
  TimePoint began() const { return began_; }
  bool has_head() const { return has_head_; }

 private:
  void OnTargetKnown() override { Start(); }
  void StartAt(const Target::Choice& choice);
  bool StartElsewhere();
  void Route();
  void Start();
  void Refuse(const absl::Status& why);
  void SendRequest(absl::string_view bytes, bool end_stream);
  void GrantRequest();
  void ForgetRequest();
  void CountRequest();
  void ReleaseRequest();
  int64_t RoomBytes() const;
  bool MayWaitForMore(size_t bytes) const;
  void CountAnswer();
  void ReleaseAnswer();
  WorkerStream* LeaveWorker();
  void EndAnswer(absl::StatusCode code);

  ProxyCore& proxy_;
  ClientConnection* client_;  // null: its stream is gone
  const int32_t stream_;
  const std::shared_ptr<const void> living_;  // see ProxyCore::OnCallBegan
  const TimePoint began_;
  bool has_head_ = false;  // all of its headers have come
  ForwardedHead head_;
  TimePoint deadline_ = TimePoint::max();
  std::shared_ptr<Target> target_;
  std::string pattern_;  // of the policy
  std::string authority_;
  bool tls_ = false;
  WorkerStream* worker_ = nullptr;  // null: not routed yet, or ended

  // DATA of the request that was not sent, or that is kept in case the worker never looks at it.
  std::string request_;
  bool request_ended_ = false;
  bool replayable_ = true;      // request_ has all of it
  size_t ungranted_bytes_ = 0;  // of the client's window, that it has used
  HeldBytes::Holder held_request_{[this] { ReleaseRequest(); }};

  size_t unreached_ = 0;  // workers that it waited for, and that could not be reached
  AttemptTime time_;      // at its worker
  bool headers_sent_ = false;
  bool answered_ = false;  // the client has been told how the call ended
  std::optional<absl::StatusCode> code_;
  bool link_is_late_ = false;   // if the code is DEADLINE_EXCEEDED
  bool method_exists_ = false;  // the worker has said a status other than UNIMPLEMENTED
  int64_t response_bytes_ = 0;
  HeldBytes::Holder held_answer_{[this] { ReleaseAnswer(); }};
  int64_t asked_bytes_ = 0;  // of the answer, as the core has counted them
  TimePoint stuck_since_ = TimePoint::max();
};

}  // namespace sluice
