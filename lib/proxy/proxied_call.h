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
#include "lib/proxy/proxy_call_logic.h"
#include "lib/proxy/target.h"
#include "lib/scheduling/attempt_time.h"

namespace sluice {

class Http2Client;
class ProxyLoop;

// The status of calls that end because their clients do not read, while more than `max_held_bytes` of responses are
// held.
absl::Status StuckClients(int64_t max_held_bytes);

// One call of a client, from its first header until it has ended on both sides: ProxyCallLogic decides, and this class
// carries out. The proxy forwards the request as it arrives. The schedule of the link determines when the response
// arrives, message by message, and only while the client reads. The client's connection holds the call while its stream
// is open, and its stream to the worker holds it, too. Used on the link's thread only.
class ProxiedCall final : public StreamEvents,
                          public StreamUser,
                          public TargetWaiter,
                          public std::enable_shared_from_this<ProxiedCall> {
 public:
  // `client` calls OnClosed before it is destroyed. After OnClosed the call ignores everything that the worker sends,
  // and the loop may have been destroyed.
  ProxiedCall(ProxyLoop& proxy, Http2Client& client, int32_t stream);

  // StreamEvents: the client's side.
  void OnHeaders(HeaderList headers, bool end_stream) override;
  void OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) override;
  void OnWritable() override { OnClientTook(); }
  void OnClosed(StreamEnd end) override;
  // The client has read bytes, or the bound for its unread bytes has been raised.
  void OnClientTook();

  // StreamUser: the worker's side.
  std::optional<Opening> BeginRequest(TimePoint now, int64_t granted_bytes) override;
  void OnRequestSent() override;
  void OnRequestWritable() override;
  void OnResponseHeld(HeldFor held_for) override;
  bool OnResponseHeaders(HeaderList headers, bool end_stream) override;
  bool OnResponseData(absl::string_view bytes, bool end_stream) override;
  void OnResponseAsked() override { CountResponse(); }
  bool OnStreamOver(const StreamEnd* end, const absl::Status& why) override;
  int64_t WantedBytes() override;

  // As in ProxyCallLogic.
  void Fail(const absl::Status& why);
  void FailStuck(const absl::Status& why);
  int32_t stream() const { return stream_; }
  // Since when the client has read nothing although bytes wait for it. TimePoint::max(): no bytes wait, or it reads.
  TimePoint stuck_since() const { return stuck_since_; }
  TimePoint deadline() const { return deadline_; }
  TimePoint began() const { return began_; }
  bool has_head() const { return logic_.request() != ProxyCallLogic::Request::kHead; }

 private:
  void OnTargetKnown() override;

  template <class Event>
  void Drive(Event&& event);
  void ApplyAll();
  void Apply(const ProxyCallLogic::Action& action);
  void ApplyToClient(const ProxyCallLogic::Action& action);
  void Route();
  void ReportRefused(const std::string& target, const absl::Status& why);
  void Start();
  void StartAt(const Target::Choice& choice);
  bool FindOther();
  void Send();
  void GrantRequest();
  void ForgetRequest();
  void CountRequest();
  void ReleaseRequest();
  void ReleaseResponse();
  int64_t RoomBytes() const;
  bool MayWaitForMore(size_t bytes) const;
  void CountResponse();
  ScheduledStream* LeaveWorker();
  absl::Status LateReason(const absl::Status& why) const;

  ProxyLoop& proxy_;
  Http2Client* client_;  // null: its stream is closed
  const int32_t stream_;
  const std::shared_ptr<const void> living_;  // see ProxyLoop::OnCallBegan
  const TimePoint began_;
  ProxyCallLogic logic_;
  ProxyCallLogic::Actions actions_;  // that have not been applied
  bool applying_ = false;

  ForwardedHead head_;
  TimePoint deadline_ = TimePoint::max();
  std::shared_ptr<Target> target_;
  std::optional<Target::Choice> other_;  // the next worker, if the first could not be reached
  std::string pattern_;                  // the pattern of the policy that matches the worker
  std::string authority_;
  bool tls_ = false;
  size_t unreached_ = 0;               // workers that the call waited for and that could not be reached
  ScheduledStream* worker_ = nullptr;  // null: not started, or over

  std::string request_;         // DATA that is kept, to be sent when a stream to a worker opens
  std::string sending_;         // DATA of this event
  size_t ungranted_bytes_ = 0;  // sent by the client, and not granted to it again
  HeldBytes::Holder held_request_{[this] { ReleaseRequest(); }};

  AttemptTime time_;           // at its worker
  bool link_is_late_ = false;  // if the status is DEADLINE_EXCEEDED
  int64_t response_bytes_ = 0;
  HeldBytes::Holder held_response_{[this] { ReleaseResponse(); }};
  int64_t asked_bytes_ = 0;  // of the response, as counted in the loop
  TimePoint stuck_since_ = TimePoint::max();
};

}  // namespace sluice
