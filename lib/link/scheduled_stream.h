#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <boost/intrusive/list.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/grpc_wire/message_prefixes.h"
#include "lib/http2/session.h"
#include "lib/link/scheduled.h"
#include "lib/link/stream_window.h"
#include "lib/scheduling/held_for.h"

namespace sluice {

class Connection;
class LinkLoop;
class Worker;

// Linked while the stream waits for its worker: to be opened, or to be reset.
struct WaitTag;
using WaitLink = boost::intrusive::list_base_hook<boost::intrusive::tag<WaitTag>,
                                                  boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
class WaitHook : public WaitLink {
 public:
  ~WaitHook() { unlink(); }
  // Counts the stream in `counter` until unlink.
  void CountIn(size_t& counter) {
    counter_ = &counter;
    ++counter;
  }
  void unlink() {
    WaitLink::unlink();
    if (counter_ != nullptr) --*std::exchange(counter_, nullptr);
  }

 private:
  size_t* counter_ = nullptr;
};
// Linked while its request waits until the socket of its connection takes more.
struct DrainTag;
using DrainHook = boost::intrusive::list_base_hook<boost::intrusive::tag<DrainTag>,
                                                   boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

// The stream of one call to one worker: it is scheduled, opened, granted message by message and part by part, and it
// ends. What the bytes mean is up to the derived class. Its LinkLoop owns it until it has ended. Used on the link's
// thread only.
class ScheduledStream : public Scheduled, public WaitHook, public DrainHook, private StreamEvents {
 public:
  struct Options {
    std::shared_ptr<Worker> worker;
    int64_t response_bytes = 0;  // expected bytes of its messages
    bool many_messages = false;  // the worker may send several
    bool may_idle = false;       // the stream may stay open between messages; see CallRequest
    TimePoint deadline = TimePoint::max();
  };
  // The beginning of a request: its head, and the DATA that is there already.
  struct Opening {
    HeaderList head;
    std::string data;
    bool end_stream = true;
  };
  ScheduledStream(LinkLoop& loop, Options options);

  CallRequest Request();  // for the schedule
  CallId id() const { return id_; }
  void set_id(CallId id) { id_ = id; }
  size_t position() const { return position_; }
  void set_position(size_t position) { position_ = position; }
  Worker& worker() { return *options_.worker; }

  // True if the call has ended, or OnEnded was called.
  bool over() const { return told_; }
  // Returns true if the call needs no end by the schedule: it is over, or its stream must not be reset yet, since the
  // server would take that for an attack. OnEnded was then called. Until the reset, bytes that come are dropped.
  bool Abandon(const absl::Status& why);
  void ResetNow();  // its stream may be reset

  // The status of the call if the schedule ends it before it has a status of its own.
  void set_end_status(absl::Status why) { end_status_ = std::move(why); }
  // What the worker is told if this side resets the stream.
  void set_reset_error(Http2Error error) { reset_error_ = error; }
  // The worker can take calls again, or what MayBegin waits for is here.
  void Resume();
  // The socket of its connection has taken all that was written.
  void OnConnectionDrained() { OnWritable(); }

  // Scheduled.
  void Send(CallId id, int64_t granted_bytes) final;
  void Grant(int64_t bytes) final;
  void EndUnsent(absl::Status why) final;
  void Abort() final;

 protected:
  // Whether the request may leave, with so many bytes of the response that come unasked. If not, it waits until Resume.
  virtual bool MayBegin(int64_t /*granted_bytes*/) { return true; }
  // Begins the request, or begins it again if the worker never looked at it.
  virtual Opening Begin(TimePoint now) = 0;
  // Whether the request may begin again, though it was sent.
  virtual bool MayBeginAgain() const { return true; }
  virtual void OnSent() = 0;  // again if the request began again
  // The length prefix of the first message is here, `ready_after` the request was sent.
  virtual void OnReady(std::chrono::nanoseconds /*ready_after*/) {}
  // Begins as kNothing, and has changed.
  virtual void OnHeld(HeldFor /*held_for*/) {}
  // Head, DATA and trailers of the answer. Return false if the stream is to be reset, since they are wrong or are not
  // needed. Take keeps or passes on the bytes, HandOut comes when the schedule knows of them.
  virtual bool TakeHeaders(HeaderList headers, bool end_stream) = 0;
  virtual bool TakeData(absl::string_view bytes, bool end_stream) = 0;
  virtual void HandOut() {}
  // Asked between messages, after HandOut: whether the prefix of the next message may come. If not, see LetNextCome.
  virtual bool MayComeNext() { return true; }
  // What SendData said it keeps has left.
  virtual void OnRequestWritable() {}
  // Maximum number of bytes of the current message that may be asked for and not be here. See AskForMore.
  virtual int64_t WantedBytes() { return std::numeric_limits<int64_t>::max(); }
  // asked_bytes has grown.
  virtual void OnAsked() {}
  // The stream has closed, or a Take has returned false and its reset waits. `why` is not OK if the call was given up.
  // Returns whether the worker has answered with OK. OnEnded follows.
  virtual bool Conclude(StreamEnd end, const absl::Status& why) = 0;
  // The call is gone, and no other hook is called. OK stands for the arguments of Conclude.
  virtual void OnEnded(absl::Status why) = 0;

  // For WantedBytes that have grown.
  void AskForMore();
  // For a MayComeNext that has become true.
  void LetNextCome();
  // Sends DATA of the request: as Http2Session::SendData, but that all of it is kept where the worker's socket takes no
  // more. Returns FailedPrecondition while there is no stream.
  absl::StatusOr<size_t> SendData(std::string bytes, bool end_stream);
  bool open() const { return connection_ != nullptr && wanted(); }
  // Whether nothing of SendData waits for the worker's window, or is one of many bytes that wait at its socket.
  bool request_left() const;
  // Bytes of the current message that the schedule lets come and that are not here.
  int64_t asked_bytes() const { return asked_bytes_; }
  // Bytes of the current message that are still to come; 0 between messages.
  int64_t pending_message_bytes() const { return prefixes_.pending_message_bytes(); }
  int64_t messages() const { return prefixes_.messages(); }  // that have begun
  bool wanted() const { return !told_ && !reset_; }          // nobody has given the call up
  bool late() const;                                         // the deadline has passed
  // The value of kTcpReportKey in the trailers.
  void CountTcpReport(std::string_view report);
  LinkLoop& loop() { return loop_; }
  const Options& options() const { return options_; }

 private:
  // StreamEvents.
  void OnHeaderBytes(size_t wire_bytes) final;
  void OnHeaders(HeaderList headers, bool end_stream) final;
  void OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) final;
  void OnWritable() final;
  void OnClosed(StreamEnd end) final;

  void TellReady(bool prefix_came);
  void WidenWindow();
  void SetHeld(HeldFor held_for);
  bool MayReset();
  void ResetStream();
  void RefuseResponse();
  void CountUnanswered(const absl::Status& why);
  void DropUntilReset(absl::Status why);
  void Tell(absl::Status why);
  void End(absl::Status why, CallEnd how);

  LinkLoop& loop_;
  const Options options_;
  CallId id_;
  size_t position_ = 0;  // in the loop's list of streams

  const TimePoint submitted_;
  TimePoint sent_;
  TimePoint granted_;  // the first grant; default: none
  std::chrono::nanoseconds ready_after_{0};
  Connection* connection_ = nullptr;  // while the stream is open
  int32_t stream_ = 0;
  StreamWindow window_;
  MessagePrefixes prefixes_;
  int64_t asked_bytes_ = 0;  // of the current message: the schedule knows that they come, and they are not here
  bool ready_ = false;
  HeldFor held_for_ = HeldFor::kNothing;  // as the owner was told
  bool unanswered_ = false;               // the deadline passed before it was ready, and the worker table was told so
  bool headers_came_ = false;             // the worker has looked at the request
  Http2Error reset_error_ = Http2Error::kCancel;
  bool reset_ = false;    // this side has reset the stream
  bool refused_ = false;  // the response is not gRPC, or too large
  bool told_ = false;     // OnEnded was called; if the stream is open, it waits for its reset
  bool ended_ = false;
  int unhandled_ = 0;  // how often the worker said that it never looked at the request
  absl::Status end_status_;
};

}  // namespace sluice
