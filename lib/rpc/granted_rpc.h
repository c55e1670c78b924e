#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "lib/rpc/completion.h"
#include "lib/rpc/tcp_report.h"

namespace sluice {

// One RPC as raw bytes, unary or server-streaming, whose answer can wait for a grant.
//
// The answer is asked for in two steps. The request leaves with a wait for the answer's headers: they say that it is
// ready, and HTTP/2 flow control holds the rest back at the worker, since nobody has asked for it (the channel's window
// is that of WorkerChannels for grants). Asking for the message opens the window by its size: that is the grant. A call
// that is not held asks at once. See docs/scheduling.md.
//
// Used once: Prepare, Start, then Grant (held calls, after OnReady). Cancel may come at any time after Prepare, from
// any thread. It lives until OnEnd, which always comes.
class GrantedRpc {
 public:
  // Called on the threads that poll the queue, one at a time, but that a call which is cancelled may end while OnReady
  // runs. OnReady only for held calls that are to be granted.
  class Events {
   public:
    virtual ~Events() = default;
    virtual void OnReady() = 0;
    virtual void OnMessage(grpc::ByteBuffer& message) = 0;
    virtual void OnEnd(const grpc::Status& status) = 0;  // the RPC may be destroyed in it, unless somebody holds it
    virtual std::shared_ptr<void> Hold() = 0;            // keeps the RPC and this alive
  };

  // The one message of a unary method or every message of a server-streaming one. `request` and `events` outlive it.
  static std::unique_ptr<GrantedRpc> Unary(Events& events, bool held);
  static std::unique_ptr<GrantedRpc> ServerStreaming(Events& events, bool held);
  virtual ~GrantedRpc() = default;

  // For metadata and the deadline, before Prepare.
  grpc::ClientContext& context() { return context_; }

  virtual void Prepare(grpc::GenericStub& stub, const std::string& method, const grpc::ByteBuffer& request,
                       grpc::CompletionQueue& queue) = 0;
  virtual void Start() = 0;
  void Grant() { AskForAnswer(); }
  void Cancel();

  // What the worker announced in its headers; from OnReady on.
  std::optional<int64_t> AnnouncedResponseBytes() const;
  // What the worker told of the connection in its trailers; from OnEnd on.
  std::optional<TcpReport> Report() const;

 protected:
  GrantedRpc(Events& events, bool held) : events_(events), held_(held) {}

  // The headers are here; or the call has ended without any (`ok` is false), and has nothing to be granted.
  void BeReady(bool ok);
  void AskForAnswer();  // once, however often it is called
  virtual void DoAskForAnswer() = 0;
  bool asked() const { return asked_; }

  Events& events_;
  const bool held_;
  grpc::ClientContext context_;
  grpc::Status status_;

 private:
  std::atomic<bool> ready_ = false;
  std::atomic<bool> asked_ = false;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace sluice
