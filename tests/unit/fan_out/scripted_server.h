#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/metadata.h"

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/unit/link/test_http2_server.h"
#include "tests/watched.h"

namespace sluice::testing {

// How a server handles one call.
struct Script {
  std::vector<std::string> messages = {""};  // as they are on the wire
  absl::Status status;
  std::string status_details;         // a google.rpc.Status, or any bytes
  absl::Duration delay;               // before the first message, or before the status if there is no message
  std::optional<size_t> hold_before;  // hold this message until Release; the number of messages holds the status
  bool early_headers = false;         // sends headers first, before a delay or a hold
  bool compressed = false;            // sets the compressed flag of the messages; `headers` contain grpc-encoding
  Metadata headers;
  Metadata trailers;
};

// A call as the server received it.
struct Seen {
  std::string method;
  std::string authority;
  std::string request;
  std::multimap<std::string, std::string> metadata;
  const void* connection = nullptr;  // identifies the connection
  std::chrono::system_clock::time_point deadline;
};

// A server in this process for unary and server-streaming methods of any service. It follows a script, and shares only
// the HTTP/2 code with the client. It sends a message after the previous message has left. Thread-safe.
class ScriptedServer {
 public:
  struct Counts {
    int requests = 0;
    int open = 0;
    int most_open = 0;  // maximum of `open`
    int holding = 0;
    int cancelled = 0;  // reset by the client, or lost with its connection
  };
  using Play = std::function<Script(const Seen&)>;

  explicit ScriptedServer(
      Play play = [](const Seen&) { return Script(); }, std::optional<TlsServerEnd::Options> tls = std::nullopt);
  ~ScriptedServer();

  const std::string& address() const { return address_; }
  // Called for each later call, on the server's thread. Those calls may be held, even after an earlier Release.
  void SetPlay(Play play);
  void Release();  // stops holding current and later calls

  void Stop();   // at once, like a process that dies: open calls are lost
  void Start();  // again, at the same address

  Counts counts() const { return counts_.Get(); }
  std::vector<Seen> seen() const { return seen_.Get(); }
  size_t connections() const;  // that requests arrived on
  // Returns false if the condition did not become true in time.
  bool Await(const std::function<bool(const Counts&)>& condition) const { return counts_.Await(condition); }
  bool AwaitHolding(int calls) const {
    return Await([calls](const Counts& counts) { return counts.holding == calls; });
  }

 private:
  struct Playing;
  struct Orders {
    Play play;
    bool released = false;
  };

  void Begin(TestHttp2Server::Call& call);
  void Step(Playing& playing);
  void Finish(Playing& playing);
  void End(Playing& playing, StreamEnd end);

  TestHttp2Server::Options options_;
  std::string address_;
  Watched<Orders> orders_;
  Watched<Counts> counts_;
  Watched<std::vector<Seen>> seen_;
  std::map<TestHttp2Server::Call*, std::shared_ptr<Playing>> playing_;  // used on the server's thread only
  std::unique_ptr<TestHttp2Server> server_;                             // null: stopped
};

}  // namespace sluice::testing
