#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"
#include "lib/link/scheduled_stream.h"
#include "lib/proxy/call_route.h"
#include "lib/proxy/client_groups.h"
#include "lib/proxy/forwarded_head.h"
#include "lib/proxy/held_bytes.h"
#include "lib/proxy/held_response.h"
#include "lib/proxy/proxy_call_logic.h"
#include "lib/proxy/target.h"
#include "lib/scheduling/attempt_time.h"

namespace sluice {

class Http2Client;
class ProxyLoop;

// The status of calls that end because their clients do not read, while more than `max_held_bytes` of responses are
// held.
absl::Status StuckClients(int64_t max_held_bytes);
// The text that clients of other hosts receive about a target that cannot be reached. The reasons would make the proxy
// a scanner of ports, so only the log has them.
absl::Status Unreached(const std::string& target);

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
  // `charge`: its place in limits.calls.
  ProxiedCall(ProxyLoop& proxy, Http2Client& client, int32_t stream, std::unique_ptr<ClientCharge> charge);

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
  void OnResponseReady(std::chrono::nanoseconds ready_after) override { route_.OnReady(ready_after); }
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
  // Whether the call began at `time` or before, and its headers have not arrived.
  bool AwaitsHeadSince(TimePoint time) const {
    return logic_.request() == ProxyCallLogic::Request::kHead && began_ <= time;
  }
  // Ends the call with `stuck` if its client has read nothing since `stuck_since`, and if the call is late: only a hung
  // client leaves it open.
  void LookAround(TimePoint now, TimePoint stuck_since, const absl::Status& stuck);

 private:
  void OnTargetStep() override;

  template <class Event>
  void Drive(Event&& event);
  void Apply(const ProxyCallLogic::Action& action);
  void ApplyToClient(const ProxyCallLogic::Action& action);
  absl::Status ReadClass(const std::string& name);
  void Route();
  void Start();
  void Send();
  void GrantRequest();
  void ForgetRequest();
  void CountRequest();
  void ReleaseRequest();
  void CountResponse();
  ScheduledStream* LeaveWorker();

  ProxyLoop& proxy_;
  Http2Client* client_;  // null: its stream is closed
  const int32_t stream_;
  // It counts until the call is destroyed: its stream to the worker may be waiting to send its reset.
  const std::unique_ptr<ClientCharge> charge_;
  const TimePoint began_;
  ProxyCallLogic logic_;
  ProxyCallLogic::Actions actions_;  // that have not been applied
  bool applying_ = false;

  ForwardedHead head_;
  size_t traffic_class_ = 0;
  TimePoint deadline_ = TimePoint::max();
  CallRoute route_;
  std::string authority_;
  std::string worker_address_;  // that was chosen last
  std::string traceparent_;     // of the client
  bool tls_ = false;
  bool retries_ = false;  // the worker has failed, and the call is sent to another one once the stream is over
  ScheduledStream* worker_ = nullptr;  // null: not started, or over

  std::string request_;         // DATA that is kept, to be sent when a stream to a worker opens
  std::string sending_;         // DATA of this event
  size_t ungranted_bytes_ = 0;  // sent by the client, and not granted to it again
  HeldBytes::Holder held_request_;

  AttemptTime time_;                    // at its worker
  TimePoint sent_ = TimePoint::max();   // when the request has left; max: it has not
  TimePoint ready_ = TimePoint::max();  // when the response has begun
  bool expired_ = false;                // its stream waited for the link for too long
  bool link_is_late_ = false;           // if the status is DEADLINE_EXCEEDED
  std::string limit_;                   // at which the proxy has refused or ended it; empty: none
  int64_t response_bytes_ = 0;
  HeldResponse held_response_;
};

}  // namespace sluice
