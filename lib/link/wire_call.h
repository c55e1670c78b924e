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

// One call to one worker, as those above the link want it made.
struct CallSpec {
  std::shared_ptr<Worker> worker;
  std::string path;  // "/package.Service/Method"
  bool server_streaming = false;
  std::shared_ptr<const std::string> request;  // framed: see FrameMessage
  int64_t response_bytes = 0;                  // of its messages, as expected
  bool estimated = false;                      // response_bytes is a guess
  int64_t max_message_bytes = 64 << 20;
  std::shared_ptr<const Metadata> metadata;       // null: none
  std::shared_ptr<const Metadata> more_metadata;  // null: none
  TimePoint deadline = TimePoint::max();          // the worker is told
  size_t tag = 0;                                 // comes back with every event
};

// Who made a call. Called on the link's thread; may call anything of the LinkCore.
class CallOwner {
 public:
  virtual ~CallOwner() = default;

  virtual void OnSent(size_t tag) = 0;  // again where the worker never looked at it the first time
  // The length prefix of its first message is here, so long after it was sent.
  virtual void OnReady(size_t tag, std::chrono::nanoseconds ready_after) = 0;
  virtual void OnMessage(size_t tag, std::string message) = 0;
  // Last of all: the call is gone.
  virtual void OnEnded(size_t tag, RpcEnd end) = 0;
};

// Linked while the call waits for its worker: to be sent, or to be reset.
struct WaitTag;
using WaitHook = boost::intrusive::list_base_hook<boost::intrusive::tag<WaitTag>,
                                                  boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

// One call: scheduled, sent, granted part by part, answered. Owned by its LinkCore until it has ended; for the link's
// thread only.
class WireCall final : public Scheduled, public WaitHook, private StreamEvents {
 public:
  WireCall(LinkCore& core, CallSpec spec, CallOwner& owner);

  CallRequest Request();  // as the schedule gets it
  CallId id() const { return id_; }
  void set_id(CallId id) { id_ = id; }
  size_t position() const { return position_; }
  void set_position(size_t position) { position_ = position; }
  Worker& worker() { return *spec_.worker; }

  // It has ended, or its owner has heard so.
  bool over() const { return owner_ == nullptr; }
  // True where its stream must not be reset yet, since the worker's server would take that for an attack: the owner
  // hears that it ended, and what comes until the reset is let in within the budget, and dropped.
  bool Abandon(const absl::Status& why);
  void ResetNow();  // its stream may be reset

  // What the owner hears where the schedule ends the call before it has a status of its own.
  void set_end_status(absl::Status why) { end_status_ = std::move(why); }
  // The worker can be sent to again.
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
  void ResetStream();
  void ResetLater();
  void End(RpcEnd end, CallEnd how);
  void TellTable(const RpcEnd& end, TimePoint now);

  LinkCore& core_;
  const CallSpec spec_;
  CallOwner* owner_;  // null: nobody wants what still comes
  CallId id_;
  size_t position_ = 0;  // in the core

  const TimePoint submitted_;
  TimePoint sent_;
  TimePoint granted_;  // the first time
  std::chrono::nanoseconds ready_after_{0};
  Connection* connection_ = nullptr;  // while its stream is open
  int32_t stream_ = 0;
  StreamWindow window_;
  std::optional<ResponseReader> reader_;  // anew where the request is sent again
  bool ready_ = false;
  bool asked_ = false;  // bytes of the answer were let in
  bool reset_ = false;  // by this side, or about to be
  bool ended_ = false;
  int unhandled_ = 0;          // times that the worker said that it never looked at it
  int64_t message_bytes_ = 0;  // that came
  absl::Status end_status_;
};

}  // namespace sluice
