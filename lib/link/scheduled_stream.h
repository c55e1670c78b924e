#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/intrusive/list.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"
#include "lib/link/queued_bytes.h"
#include "lib/link/response_flow.h"
#include "lib/link/scheduled.h"
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
// Linked from its submission until it is sent, and after its worker has not processed it.
struct QueueTag;
using QueueLink = boost::intrusive::list_base_hook<boost::intrusive::tag<QueueTag>,
                                                   boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
struct QueueHook : QueueLink {
  void unlink() {
    QueueLink::unlink();
    queued_bytes.Clear();
  }

  TimePoint queued_at;
  int64_t request_bytes = 0;        // as in ScheduledStream::Options
  QueuedBytes::Entry queued_bytes;  // the bytes of its request
  bool waits_for_room = false;      // at its user, to be sent
  bool expired = false;             // the link ended it, because it waited for the link, or for room, for too long
};
// Linked while its request waits until the socket of its connection accepts more bytes.
struct DrainTag;
using DrainHook = boost::intrusive::list_base_hook<boost::intrusive::tag<DrainTag>,
                                                   boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

// The user of a stream: makes the request and receives the response. There is one for each stream, which holds it.
// Called on the link's thread. It may call any function of the LinkLoop.
class StreamUser {
 public:
  // The beginning of a request: its header, and the DATA that has arrived already.
  struct Opening {
    HeaderList head;
    std::string data;
    bool end_stream = true;
    // The most bytes of the response that the worker may send without WantedBytes, if the schedule grants it without a
    // bound. 0: all.
    int64_t unasked_bytes = 0;
  };

  virtual ~StreamUser() = default;

  // Begins the request, or begins it again if the worker never processed it. `granted_bytes` of the response may come
  // with no further grant; kMaxResponseBytes: all of it. Null: the request must wait until LinkLoop::Resume.
  virtual std::optional<Opening> BeginRequest(TimePoint now, int64_t granted_bytes) = 0;
  // The request was sent; called again if it began again.
  virtual void OnRequestSent() = 0;
  // The length prefix of the first message has arrived, `ready_after` the request was sent.
  virtual void OnResponseReady(std::chrono::nanoseconds /*ready_after*/) {}
  // The reason why the worker may not send has changed. It begins as kNothing.
  virtual void OnResponseHeld(HeldFor held_for) = 0;
  // The headers, DATA and trailers of the response. Return false if they are wrong or not needed: the stream is then
  // reset. The schedule does not count the bytes before OnResponseCounted.
  virtual bool OnResponseHeaders(HeaderList headers, bool end_stream) = 0;
  virtual bool OnResponseData(absl::string_view bytes, bool end_stream) = 0;
  // The schedule has counted the bytes of OnResponseData.
  virtual void OnResponseCounted() {}
  // ResponseFlow::asked_bytes has grown.
  virtual void OnResponseAsked() {}
  // Bytes that SendData kept have left.
  virtual void OnRequestWritable() {}
  // The stream is over, and no event follows. `end`: how it closed; null if it was never open. `why`: why the call
  // ends, if this side ended it. Returns whether the worker has responded with OK.
  virtual bool OnStreamOver(const StreamEnd* end, const absl::Status& why) = 0;

  // The most bytes of the current message that may be requested and have not arrived. See AskForMore.
  virtual int64_t WantedBytes() = 0;
  // Whether the length prefix of the next message may come; asked between messages. See AskForMore.
  virtual bool WantsNextMessage() { return true; }
};

// The stream of one call to one worker. The schedule admits it, the worker's connection opens it, and the schedule
// grants its response message by message and part by part. Its LinkLoop owns it until it has ended. Used on the link's
// thread only.
class ScheduledStream final : public Scheduled,
                              public WaitHook,
                              public QueueHook,
                              public DrainHook,
                              private StreamEvents {
 public:
  struct Options {
    std::shared_ptr<Worker> worker;
    int64_t response_bytes = 0;  // expected bytes of its messages
    bool many_messages = false;  // the worker may send several
    bool may_idle = false;       // the stream may stay open between messages; see CallRequest
    TimePoint deadline = TimePoint::max();
    int64_t request_bytes = 0;  // held while it waits; 0: they are bounded elsewhere
    uint64_t client = 0;  // for which the call is made; 0: this process. Used to divide the connections of the worker
  };
  ScheduledStream(LinkLoop& loop, Options options, std::shared_ptr<StreamUser> user);

  // For the loop and the worker.
  CallRequest Request();  // for the schedule
  Worker& worker() const { return *options_.worker; }
  uint64_t client() const { return options_.client; }
  bool unsent() const { return phase_ == Phase::kWaiting && !told_; }
  // Returns true if the schedule need not end the call: it is over, or the server would treat its reset as an attack,
  // so the reset must wait. OnStreamOver was then called, and the stream drops all bytes until the reset.
  // Otherwise `why` is the status of the call if it has none when the schedule ends it.
  bool Abandon(const absl::Status& why);
  void ResetNow();  // the stream may be reset
  // Also called when the socket of its connection has accepted all written bytes.
  void OnWritable() override;
  void Send(int64_t granted_bytes) override;
  void Grant(int64_t bytes) override;
  void EndUnsent(absl::Status why) override;
  void Abort() override;

  // For the user.
  bool over() const { return told_; }                                 // OnStreamOver was called
  bool given_up() const { return told_ || phase_ == Phase::kReset; }  // it is over, or this side has reset it
  bool open() const { return connection_ != nullptr && !given_up(); }
  // Sends DATA of the request, as Http2Session::SendData does. If the worker's socket accepts no more bytes, all of
  // them count as kept. Returns FailedPrecondition if the stream is not open.
  absl::StatusOr<size_t> SendData(std::string bytes, bool end_stream);
  // Whether no byte of SendData waits for the worker's window or at its socket.
  bool request_left() const;
  // The request cannot begin again.
  void SetBeginsOnce() { may_begin_again_ = false; }
  // The HTTP/2 error that the worker receives if this side resets the stream.
  void set_reset_error(Http2Error error) { reset_error_ = error; }
  // WantedBytes has grown, or WantsNextMessage has become true.
  void AskForMore();
  const ResponseFlow& response() const { return flow_; }

 private:
  friend class LinkLoop;  // for position_

  // The phases from its submission on.
  enum class Phase {
    kWaiting,  // for the schedule or for its worker
    kOpen,     // on a connection
    kReset,    // this side has reset it, and it closes
    kEnded,
  };
  enum class Response {
    kAwaited,  // the worker may not have processed the request
    kBegun,    // its headers have arrived
    kReady,    // the length prefix of the first message has arrived
    kRefused,  // it is not gRPC, or too large
  };

  // StreamEvents.
  void OnHeaderBytes(size_t wire_bytes) override;
  void OnHeaders(HeaderList headers, bool end_stream) override;
  void OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) override;
  void OnClosed(StreamEnd end) override;

  bool ObserveReady();
  void TellReady(bool prefix_came);
  void LetNextCome();
  void WidenWindow();
  void SetHeld(HeldFor held_for);
  bool MayReset();
  void RefuseResponse();
  void CountUnanswered(const absl::Status& why);
  void DropUntilReset(const StreamEnd* end, const absl::Status& why);
  bool Tell(const StreamEnd* end, const absl::Status& why);
  void End(const absl::Status& why, CallEnd how);

  LinkLoop& loop_;
  const Options options_;
  const std::shared_ptr<StreamUser> user_;
  size_t position_ = 0;  // in the loop's list of streams

  const TimePoint submitted_;
  TimePoint sent_;
  TimePoint granted_;  // the first grant; default: none
  std::chrono::nanoseconds ready_after_{0};
  Connection* connection_ = nullptr;  // while the stream is open or reset
  int32_t stream_ = 0;
  Phase phase_ = Phase::kWaiting;
  Response response_ = Response::kAwaited;
  bool told_ = false;  // OnStreamOver was called; an open stream then waits for its reset
  ResponseFlow flow_;
  HeldFor held_for_ = HeldFor::kNothing;  // the last value that the user received
  bool unanswered_ = false;  // the deadline passed before the response was ready, and the worker table counted that
  bool may_begin_again_ = true;
  int unhandled_ = 0;  // how often the worker reported that it never processed the request
  Http2Error reset_error_ = Http2Error::kCancel;
  absl::Status end_status_;  // of the call if the schedule ends it; OK: none was set
};

// Streams that wait for their worker.
using WaitingStreams = boost::intrusive::list<ScheduledStream, boost::intrusive::base_hook<WaitLink>,
                                              boost::intrusive::constant_time_size<false>>;

}  // namespace sluice
