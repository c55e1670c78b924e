#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/support/status.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace sluice::testing {

// What a server does with one call.
struct Script {
  std::vector<std::string> messages = {""};  // as they are on the wire
  grpc::Status status;
  std::optional<size_t> hold_before;  // this message, or with their number the status: until Release
  bool early_headers = false;         // before anything else, a hold included
  std::map<std::string, std::string> headers;
  std::map<std::string, std::string> trailers;
};

// A call as the server saw it.
struct Seen {
  std::string method;
  std::string authority;
  std::string request;
  std::multimap<std::string, std::string> metadata;
  std::string connection;  // one for each
  std::chrono::system_clock::time_point deadline;
};

// A gRPC server in this process for unary and server-streaming methods of any service, that does what the test says and
// knows nothing of us. Thread-safe.
class ScriptedServer {
 public:
  struct Counts {
    int requests = 0;
    int open = 0;
    int holding = 0;
    int cancelled = 0;
  };
  using Play = std::function<Script(const Seen&)>;

  explicit ScriptedServer(
      Play play = [](const Seen&) { return Script(); },
      const std::shared_ptr<grpc::ServerCredentials>& credentials = grpc::InsecureServerCredentials());
  ~ScriptedServer();

  const std::string& address() const { return address_; }
  void SetPlay(Play play);  // asked for each call from now on; those may be held again
  void Release();           // what is held, and whatever would be

  Counts counts() const;
  std::vector<Seen> seen() const;
  size_t connections() const;  // that requests came by
  // False when it did not come true in time.
  bool Await(const std::function<bool(const Counts&)>& condition) const;
  bool AwaitHolding(int calls) const {
    return Await([calls](const Counts& counts) { return counts.holding == calls; });
  }

 private:
  class Service;
  class Call;

  Script Begin(Seen seen);

  mutable absl::Mutex mutex_;
  Play play_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  std::vector<Seen> seen_ ABSL_GUARDED_BY(mutex_);
  std::set<Call*> holding_ ABSL_GUARDED_BY(mutex_);
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Service> service_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace sluice::testing
