#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"
#include "tests/unit/grpc_wire/server_call.h"
#include "tests/unit/link/virtual_executor.h"

namespace sluice::testing {

// A worker of a VirtualExecutor: a gRPC server on Sluice's Http2Session, controlled by the test. Not thread-safe.
class VirtualWorker final : private VirtualExecutor::Listener {
 public:
  class Connection;

  class Call final : public ServerCall {
   public:
    Call(Connection& connection, int32_t stream);
    Connection& connection() const { return connection_; }
    bool whole() const { return whole_; }  // the request is complete
    const std::optional<StreamEnd>& end() const { return end_; }
    // Sends a header list unchanged.
    void SendHeaders(const HeaderList& headers, bool end_stream);

   private:
    void OnRequest() override;
    void OnGone(StreamEnd end) override;

    Connection& connection_;
    bool whole_ = false;
    std::optional<StreamEnd> end_;
  };

  class Connection final : private SessionEvents {
   public:
    Connection(VirtualWorker& worker, StreamSocketEvents& client);

    // Sends `frames` unchanged, and then the output of the session. Call it after a change outside of the worker's
    // handlers.
    void Flush(const std::string& frames = "");
    // Loses the connection. The client is notified after the bytes in transit (Break), or within this turn (BreakHere).
    void Break();
    void BreakHere();
    bool open() const { return client_ != nullptr; }
    TcpSocket Tcp() const;  // as the client's kernel would report it
    Http2Session& session() { return *session_; }
    size_t requests() const { return requests_; }  // number of requests that have arrived

   private:
    class ClientEnd;
    friend class Call;
    friend class VirtualWorker;

    StreamEvents* OnStream(int32_t stream) override;
    void OnBytes(absl::string_view bytes);
    void Deliver(std::function<void(StreamSocketEvents&)> event);
    void OnClientWrites();
    void Lose();

    VirtualWorker& worker_;
    StreamSocketEvents* client_;  // null: the connection has ended
    TcpSocket tcp_;               // without times
    TimePoint sent_at_;           // by the client
    TimePoint received_at_;       // by the client
    std::unique_ptr<Http2Session> session_;
    size_t requests_ = 0;
  };

  struct Options {
    uint32_t max_concurrent_streams = 1u << 16;
    // Called on a new connection, whose first bytes may be more than SETTINGS. May be null.
    std::function<void(Connection&)> on_accept;
    // Called with the bytes that a connection has received, before it handles them, and has sent. May be null.
    std::function<void(Connection&, absl::string_view)> on_received;
    std::function<void(Connection&, absl::string_view)> on_sent;
  };
  // Called for each complete request. May be null.
  using Handler = std::function<void(Call&)>;

  // The executor must outlive it.
  VirtualWorker(VirtualExecutor& executor, const std::string& address, Handler handler, Options options);

  const std::string& address() const { return address_; }
  // All connections and calls so far, in order. Calls exist from their headers on.
  const std::vector<std::unique_ptr<Connection>>& connections() const { return connections_; }
  const std::vector<std::unique_ptr<Call>>& calls() const { return calls_; }
  size_t open_connections() const;
  size_t resets() const { return resets_; }  // calls reset by the client

  // While its process is paused, the worker sends nothing. While its host is paused, or the network loses all packets,
  // it also acknowledges nothing.
  enum class Pause { kNone, kProcess, kHost };
  void SetPause(Pause pause);

 private:
  std::unique_ptr<StreamSocket> Accept(StreamSocketEvents& events) override;

  VirtualExecutor& executor_;
  const std::string address_;
  const Handler handler_;
  const Options options_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Call>> calls_;
  size_t resets_ = 0;
  Pause pause_ = Pause::kNone;
};

}  // namespace sluice::testing
