#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <boost/intrusive/list.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/grpc_wire/metadata.h"
#include "lib/grpc_wire/response_reader.h"
#include "lib/http2/session.h"
#include "lib/link/scheduled.h"
#include "lib/link/stream_window.h"

namespace sluice {

class Connection;
class LinkCore;
class Worker;

// Describes one call to one worker.
struct CallSpec {
  std::shared_ptr<Worker> worker;
  std::string path;  // "/package.Service/Method"
  bool server_streaming = false;
  std::shared_ptr<const std::string> request;  // framed: see FrameMessage
  bool gzip_request = false;                   // it was framed by FrameCompressed
  int64_t response_bytes = 0;                  // expected bytes of its messages
  bool estimated = false;                      // response_bytes is a guess
  int64_t max_message_bytes = 64 << 20;
  std::shared_ptr<const Metadata> metadata;       // may be null
  std::shared_ptr<const Metadata> more_metadata;  // may be null
  TimePoint deadline = TimePoint::max();          // the worker is told of it
  size_t tag = 0;                                 // comes back with every event
};

// The owner of a call. Called on the link's thread; it may call any function of the LinkCore.
class CallOwner {
 public:
  virtual ~CallOwner() = default;

  virtual void OnSent(size_t tag) = 0;  // again if the worker never looked at the request the first time
  // The length prefix of the first message is here, `ready_after` the request was sent.
  virtual void OnReady(size_t tag, std::chrono::nanoseconds ready_after) = 0;
  virtual void OnMessage(size_t tag, std::string message) = 0;
  // The call is gone. No event follows.
  virtual void OnEnded(size_t tag, RpcEnd end) = 0;
};

// Linked while the call waits for its worker: to be sent, or to be reset.
struct WaitTag;
using WaitHook = boost::intrusive::list_base_hook<boost::intrusive::tag<WaitTag>,
                                                  boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

// One call: it is scheduled, sent, granted part by part, and answered. Its LinkCore owns it until it has ended. Used on
// the link's thread only.
class WireCall final : public Scheduled, public WaitHook, private StreamEvents {
 public:
  WireCall(LinkCore& core, CallSpec spec, CallOwner& owner);

  CallRequest Request();  // for the schedule
  CallId id() const { return id_; }
  void set_id(CallId id) { id_ = id; }
  size_t position() const { return position_; }
  void set_position(size_t position) { position_ = position; }
  Worker& worker() { return *spec_.worker; }

  // True if the call has ended, or its owner was told that it has.
  bool over() const { return owner_ == nullptr; }
  // Returns true if the stream must not be reset yet, since the server would take that for an attack. The owner is then
  // told that the call has ended; what comes until the reset is let in, within the budget, and dropped.
  bool Abandon(const absl::Status& why);
  void ResetNow();  // its stream may be reset

  // The status that the owner gets if the schedule ends the call before it has a status of its own.
  void set_end_status(absl::Status why) { end_status_ = std::move(why); }
  // The worker can take calls again.
  void Resume();

  // Scheduled.
  void Send(CallId id, int64_t granted_bytes) override;
  void Grant(int64_t bytes) override;
  void EndUnsent(absl::Status why) override;
  void Abort() override;

 private:
  // StreamEvents.
  void OnHeaders(HeaderList headers, bool end_stream) override;
  void OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) override;
  void OnClosed(StreamEnd end) override;

  HeaderList Head(TimePoint now) const;
  void HandOut();
  void WidenWindow();
  void SetPaused(bool paused);
  void ResetStream();
  void ResetLater();
  void End(RpcEnd end, CallEnd how);
  void TellTable(const RpcEnd& end, TimePoint now);

  LinkCore& core_;
  const CallSpec spec_;
  CallOwner* owner_;  // null: the rest of the answer is dropped
  CallId id_;
  size_t position_ = 0;  // in the core's list of calls

  const TimePoint submitted_;
  TimePoint sent_;
  TimePoint granted_;  // the first grant
  std::chrono::nanoseconds ready_after_{0};
  Connection* connection_ = nullptr;  // while its stream is open
  int32_t stream_ = 0;
  StreamWindow window_;
  std::optional<ResponseReader> reader_;  // a new one if the request is sent again
  bool ready_ = false;
  bool asked_ = false;   // bytes of the answer were granted
  bool paused_ = false;  // all of them have come, and the message that is coming needs more
  bool reset_ = false;   // this side has reset the stream, or is about to
  bool ended_ = false;
  int unhandled_ = 0;          // how often the worker said that it never looked at the request
  int64_t message_bytes_ = 0;  // that have come
  absl::Status end_status_;
};

}  // namespace sluice
