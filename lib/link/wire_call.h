#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/grpc_wire/metadata.h"
#include "lib/grpc_wire/response_reader.h"
#include "lib/grpc_wire/wire_message.h"
#include "lib/link/callback_memory.h"
#include "lib/link/scheduled_stream.h"

namespace sluice {

// Describes one call to one worker.
struct CallSpec {
  std::shared_ptr<Worker> worker;
  std::string path;  // "/package.Service/Method"
  bool server_streaming = false;
  bool may_idle = false;                          // the stream may stay open between messages
  std::shared_ptr<const std::string> request;     // framed: see FrameMessage
  bool gzip_request = false;                      // it was framed by FrameCompressed
  int64_t response_bytes = 0;                     // expected bytes of its messages
  int64_t max_message_bytes = 64 << 20;           // before decompression
  std::shared_ptr<const Metadata> metadata;       // may be null
  std::shared_ptr<const Metadata> more_metadata;  // may be null
  TimePoint deadline = TimePoint::max();          // the worker receives it
  size_t tag = 0;                                 // argument of every event
  // Holds the bytes of delivered messages. Null: these bytes are not bounded.
  std::shared_ptr<CallbackMemory::Account> memory;
};

// The owner of a call. Called on the link's thread; it may call any function of the LinkLoop.
class CallOwner {
 public:
  virtual ~CallOwner() = default;

  virtual void OnSent(size_t tag) = 0;  // again if the worker never processed the first request
  // The length prefix of the first message has arrived, `ready_after` the request was sent.
  virtual void OnReady(size_t tag, std::chrono::nanoseconds ready_after) = 0;
  // Begins as kNothing, and has changed. kRoom: the room of CallSpec::memory.
  virtual void OnHeld(size_t /*tag*/, HeldFor /*held_for*/) {}
  virtual void OnMessage(size_t tag, WireMessage message) = 0;
  // The call is gone. No event follows.
  virtual void OnEnded(size_t tag, RpcEnd end) = 0;
};

// One gRPC call with one request, and with a response of one message or several. Used on the link's thread only.
class WireCall final : public StreamUser {
 public:
  // Returns its stream, which the loop has taken: see LinkLoop::Take.
  static ScheduledStream& Make(LinkLoop& loop, CallSpec spec, CallOwner& owner);
  WireCall(LinkLoop& loop, CallSpec spec, CallOwner& owner);  // for Make

 private:
  // StreamUser.
  std::optional<Opening> BeginRequest(TimePoint now, int64_t granted_bytes) override;
  void OnRequestSent() override;
  void OnResponseReady(std::chrono::nanoseconds ready_after) override;
  void OnResponseHeld(HeldFor held_for) override;
  bool OnResponseHeaders(HeaderList headers, bool end_stream) override;
  bool OnResponseData(absl::string_view bytes, bool end_stream) override;
  void OnResponseCounted() override;
  bool OnStreamOver(const StreamEnd* end, const absl::Status& why) override;
  int64_t WantedBytes() override;
  bool WantsNextMessage() override;

  int64_t BytesWithRequest(int64_t granted_bytes);  // to claim before it
  int64_t EarlyBytes();                             // bytes that may come before the response is ready
  void OnRoom();
  void Conclude(StreamEnd end, const absl::Status& why);

  LinkLoop& loop_;
  const CallSpec spec_;
  CallOwner& owner_;
  ScheduledStream* stream_ = nullptr;     // it owns the call
  std::optional<ResponseReader> reader_;  // a new one if the request begins again
  CallbackMemory::Claim claim_;           // for the message that comes, or for the next
  bool waits_to_begin_ = false;
  RpcEnd end_;
};

}  // namespace sluice
