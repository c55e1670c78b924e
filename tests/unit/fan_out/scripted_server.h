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

// What a server does with one call.
struct Script {
  std::vector<std::string> messages = {""};  // as they are on the wire
  absl::Status status;
  std::string status_details;         // a google.rpc.Status, or what the test says
  absl::Duration delay;               // before the first message, or the status where there is none
  std::optional<size_t> hold_before;  // this message, or with their number the status: until Release
  bool early_headers = false;         // before anything else, a delay and a hold included
  bool compressed = false;            // the messages say that they are compressed; `headers` have grpc-encoding
  Metadata headers;
  Metadata trailers;
};

// A call as the server saw it.
struct Seen {
  std::string method;
  std::string authority;
  std::string request;
  std::multimap<std::string, std::string> metadata;
  const void* connection = nullptr;  // one for each
  std::chrono::system_clock::time_point deadline;
};

// A server in this process for unary and server-streaming methods of any service, that does what the test says and
// knows nothing of us but our HTTP/2. A message follows when the one before has left. Thread-safe.
class ScriptedServer {
 public:
  struct Counts {
    int requests = 0;
    int open = 0;
    int most_open = 0;  // at once
    int holding = 0;
    int cancelled = 0;  // reset by the client, or lost with its connection
  };
  using Play = std::function<Script(const Seen&)>;

  explicit ScriptedServer(
      Play play = [](const Seen&) { return Script(); }, std::optional<TlsServerEnd::Options> tls = std::nullopt);
  ~ScriptedServer();

  const std::string& address() const { return address_; }
  // Asked for each call from now on, on the thread of the server; those may be held again.
  void SetPlay(Play play);
  void Release();  // what is held, and whatever would be

  void Stop();   // at once, as a process that dies: calls under way are lost
  void Start();  // again, at the same address

  Counts counts() const { return counts_.Get(); }
  std::vector<Seen> seen() const { return seen_.Get(); }
  size_t connections() const;  // that requests came by
  // False when it did not come true in time.
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
  std::map<TestHttp2Server::Call*, std::shared_ptr<Playing>> playing_;  // for the server's thread
  std::unique_ptr<TestHttp2Server> server_;                             // null: stopped
};

}  // namespace sluice::testing
