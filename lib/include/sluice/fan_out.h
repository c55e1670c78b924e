#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <google/protobuf/message_lite.h>

#include "sluice/link.h"
#include "sluice/metadata.h"
#include "sluice/tls_options.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice {

class FanOutCore;

// A unary or server-streaming method of any gRPC service, by its path: "/package.Service/Method". Request and Response
// are its protobuf messages, or std::string for their bytes as they are on the wire.
template <class Request, class Response>
struct Method {
  std::string path;
  bool server_streaming = false;
};

// What one worker is asked. Converts from a Request.
template <class Request>
struct Ask {
  Ask(Request message) : request(std::move(message)) {}  // NOLINT(google-explicit-constructor): a map returns either
  Ask(Request message, std::optional<int64_t> bytes, std::vector<size_t> others = {}, Metadata sent = {})
      : request(std::move(message)), response_bytes(bytes), replicas(std::move(others)), metadata(std::move(sent)) {}

  Request request;
  // Bytes of the answer's message (of all messages of a stream), where they are known: the schedule relies on them.
  // Default: an upper quantile of what the method answered before.
  std::optional<int64_t> response_bytes;
  // Workers that can answer the same request. They are tried when one fails or is late: the quickest of them first, by
  // what they took lately.
  std::vector<size_t> replicas;
  // Sent with this request, behind FanOutOptions::metadata.
  Metadata metadata;
};

struct FanOutOptions {
  // For the whole fan-out, waiting included. Passed on to the workers as the deadline of their calls. Above 0.
  absl::Duration timeout = absl::Seconds(10);

  // Maximum number of worker failures tolerated; one more fails the fan-out. A worker that has not answered at the
  // deadline has failed. At least 0.
  int fail_limit = 0;
  // Finish successfully after this many answers, and cancel the rest. The fan-out fails as soon as that many cannot
  // come any more. At least 1. Default: wait for every worker to answer or fail.
  std::optional<int> success_quorum;

  // Time for one attempt, from when its request is sent. An attempt that takes longer has failed, and a replica is
  // tried. Above 0. Default: as long as the fan-out.
  absl::Duration attempt_timeout = absl::InfiniteDuration();
  // Statuses after which a replica is tried. A connection that failed counts as kUnavailable. A replica is also tried
  // when an attempt takes longer than attempt_timeout, and when `merge` refuses an answer.
  std::vector<absl::StatusCode> retry_on = {absl::StatusCode::kUnavailable};
  // Retries of this FanOut are at most this share of its requests, with a few to begin with. 0 to 1.
  double retry_ratio = 0.2;

  // When a worker's answer is not ready this long after its request, a replica is asked, too; the first of the two to
  // answer counts, the other is cancelled. Either a duration above 0, or a quantile between 0 and 1 (both excluded) of
  // the times that the method took before; a quantile hedges nothing until it has seen some. Not both.
  std::optional<absl::Duration> hedge_after;
  std::optional<double> hedge_after_quantile;
  // Hedges of this FanOut are at most this share of its requests, with a few to begin with. 0 to 1.
  double hedge_ratio = 0.1;

  // Sent to every worker.
  Metadata metadata;
  // Compress requests with gzip where that makes them smaller, on the caller's thread. A worker that cannot decompress
  // them fails with kUnimplemented. Answers may come compressed with gzip, whatever this says.
  bool compress_requests = false;
  // Fill FanOutResult::responses.
  bool keep_response_metadata = false;
};

struct WorkerFailure {
  size_t primary = 0;  // the worker that `map` asked
  size_t worker = 0;   // the one that failed last: that one, or a replica
  absl::Status status;
  std::string status_details;  // its grpc-status-details-bin: a serialized google.rpc.Status; empty: none
};

// What a worker sent beside its answer.
struct ResponseMetadata {
  size_t primary = 0;
  size_t worker = 0;
  Metadata initial;
  Metadata trailing;
};

// How a fan-out ended. Its counts are of what was asked of workers: a request to a worker and its replicas is one.
// asked = answered + failures + cancelled.
struct FanOutResult {
  // OK, or: InvalidArgument (an option, an ask), ResourceExhausted (the queue is full), DeadlineExceeded, Cancelled, or
  // the status of the worker whose failure was one too many, with its address.
  absl::Status status;
  size_t asked = 0;      // workers that were not skipped
  size_t answered = 0;   // and merged
  size_t cancelled = 0;  // not needed any more, or ended with the fan-out
  std::vector<WorkerFailure> failures;
  std::vector<ResponseMetadata> responses;  // of the answers, where FanOutOptions asks for them
  size_t retries = 0;                       // requests to replicas after a failure
  size_t hedges = 0;                        // requests to replicas after hedge_after
  size_t hedges_won = 0;                    // whose answer came first
  int64_t response_bytes = 0;               // of the answers that were merged

  double Coverage() const { return asked == 0 ? 1 : static_cast<double>(answered) / static_cast<double>(asked); }
};

template <class Response>
struct Collected {
  FanOutResult result;
  // By worker of the map: one for a unary method, none where there is none. A stream that failed leaves what came.
  std::vector<std::vector<Response>> answers;
};

// A fan-out under way, from CallAsync. Thread-safe; dropping it cancels nothing.
class FanOutCall {
 public:
  virtual ~FanOutCall() = default;
  // Ends it with Cancelled, unless it has ended before. The workers are told.
  virtual void Cancel() = 0;
};

// Asks many workers at once, over one link, by its schedule: what is on its way always fits the buffer. The workers may
// be any gRPC servers. One for each set of workers; any number may share a link. Thread-safe. The destructor cancels
// what is under way and waits for it; do not call it from a callback.
//
// Callbacks (merge, done) run on the link's callback thread, or on the link's own thread with inline_callbacks: return
// soon, do not wait in them, and do not throw: an exception ends the process. `merge` is never called twice at a time
// for one fan-out, and never after `done`. `map` runs on the caller's thread, before the call returns.
class FanOut {
 public:
  struct Options {
    // host:port, unix:PATH or unix-abstract:NAME. 1 to 65536.
    std::vector<std::string> workers;
    std::optional<TlsOptions> tls;                      // default: plaintext
    int max_response_bytes = 64 << 20;                  // a larger message is an error of its call; above 0
    absl::Duration connect_timeout = absl::Seconds(5);  // for Connect; above 0
  };

  // InvalidArgument that names the option, the value and the bound.
  static absl::Status Validate(const Options& options);
  static absl::StatusOr<std::unique_ptr<FanOut>> Create(std::shared_ptr<Link> link, Options options);
  ~FanOut();

  size_t workers() const;
  std::string address(size_t worker) const;

  // Takes other workers from now on. Those that were there before keep their connections and what is known of them;
  // fan-outs that have begun end with the workers that they began with. InvalidArgument as Create.
  absl::Status UpdateWorkers(std::vector<std::string> workers);

  // Connects to the workers, for at most connect_timeout. Returns those that did not answer; they are tried again, and
  // so is each that is lost later. Optional: without it the first fan-out connects.
  std::vector<size_t> Connect();

  // What to ask worker i: a Request or an Ask<Request>; std::nullopt (of an optional of either) skips it.
  template <class Request>
  using Map = std::function<std::optional<Ask<Request>>(size_t worker)>;
  // Takes an answer, or one message of a stream. `worker` is that of `map`, also where a replica has answered for it.
  // Not OK: it is worth nothing, and who sent it has failed.
  template <class Response>
  using Merge = std::function<absl::Status(size_t worker, Response response)>;
  using Done = std::function<void(FanOutResult)>;

  // Calls `done` once, from another thread or before it returns. A worker of a stream that fails after its first
  // message was merged is not replaced by a replica.
  template <class Request, class Response>
  std::shared_ptr<FanOutCall> CallAsync(const Method<Request, Response>& method,
                                        const std::type_identity_t<Map<Request>>& map,
                                        std::type_identity_t<Merge<Response>> merge, const FanOutOptions& options,
                                        Done done);

  // The same, and waits. Not from a callback: it would wait for its own thread.
  template <class Request, class Response>
  FanOutResult Call(const Method<Request, Response>& method, const std::type_identity_t<Map<Request>>& map,
                    std::type_identity_t<Merge<Response>> merge, const FanOutOptions& options = {});
  // The same, and keeps every answer.
  template <class Request, class Response>
  Collected<Response> Collect(const Method<Request, Response>& method, const std::type_identity_t<Map<Request>>& map,
                              const FanOutOptions& options = {});

 private:
  using Addresses = std::shared_ptr<const std::vector<std::string>>;
  struct Asks {
    Addresses workers;                                  // that were asked
    std::vector<std::optional<Ask<std::string>>> asks;  // by worker
  };
  using MergeBytes = std::function<absl::Status(size_t worker, std::string response)>;

  FanOut(std::shared_ptr<Link> link, Options options);
  Addresses addresses() const;
  std::shared_ptr<FanOutCall> Start(const std::string& method, bool server_streaming, Asks asks, MergeBytes merge,
                                    const FanOutOptions& options, Done done);
  FanOutResult Await(const std::string& method, bool server_streaming, Asks asks, MergeBytes merge,
                     const FanOutOptions& options);
  template <class Request>
  Asks Serialize(const Map<Request>& map) const;
  template <class Response>
  static MergeBytes Parse(Merge<Response> merge);

  const std::shared_ptr<Link> link_;
  const Options options_;  // but for the workers, which are those of addresses_
  mutable std::mutex mutex_;
  Addresses addresses_;               // guarded by mutex_
  std::unique_ptr<FanOutCore> core_;  // for the link's thread only
};

namespace internal {

std::string ToBytes(const google::protobuf::MessageLite& message);
inline std::string ToBytes(std::string bytes) {
  return bytes;
}

// DataLoss when they are not such a message.
absl::Status FromBytes(std::string bytes, google::protobuf::MessageLite& message);
inline absl::Status FromBytes(std::string bytes, std::string& message) {
  message = std::move(bytes);
  return absl::OkStatus();
}

}  // namespace internal

template <class Request>
FanOut::Asks FanOut::Serialize(const Map<Request>& map) const {
  Asks asks{.workers = addresses(), .asks = {}};
  asks.asks.resize(asks.workers->size());
  for (size_t worker = 0; worker < asks.asks.size(); ++worker) {
    std::optional<Ask<Request>> ask = map(worker);
    if (!ask.has_value()) continue;
    asks.asks[worker].emplace(internal::ToBytes(std::move(ask->request)), ask->response_bytes, std::move(ask->replicas),
                              std::move(ask->metadata));
  }
  return asks;
}

template <class Response>
FanOut::MergeBytes FanOut::Parse(Merge<Response> merge) {
  return [merge = std::move(merge)](size_t worker, std::string bytes) {
    Response response;
    if (absl::Status parsed = internal::FromBytes(std::move(bytes), response); !parsed.ok()) return parsed;
    return merge(worker, std::move(response));
  };
}

template <class Request, class Response>
std::shared_ptr<FanOutCall> FanOut::CallAsync(const Method<Request, Response>& method,
                                              const std::type_identity_t<Map<Request>>& map,
                                              std::type_identity_t<Merge<Response>> merge, const FanOutOptions& options,
                                              Done done) {
  return Start(method.path, method.server_streaming, Serialize<Request>(map), Parse<Response>(std::move(merge)),
               options, std::move(done));
}

template <class Request, class Response>
FanOutResult FanOut::Call(const Method<Request, Response>& method, const std::type_identity_t<Map<Request>>& map,
                          std::type_identity_t<Merge<Response>> merge, const FanOutOptions& options) {
  return Await(method.path, method.server_streaming, Serialize<Request>(map), Parse<Response>(std::move(merge)),
               options);
}

template <class Request, class Response>
Collected<Response> FanOut::Collect(const Method<Request, Response>& method,
                                    const std::type_identity_t<Map<Request>>& map, const FanOutOptions& options) {
  Collected<Response> collected;
  size_t asked = 0;
  collected.result = Call<Request, Response>(
      method,
      [&](size_t worker) {
        asked = worker + 1;
        return map(worker);
      },
      [&](size_t worker, Response response) {
        if (worker >= collected.answers.size()) collected.answers.resize(worker + 1);
        collected.answers[worker].push_back(std::move(response));
        return absl::OkStatus();
      },
      options);
  if (collected.answers.size() < asked) collected.answers.resize(asked);
  return collected;
}

}  // namespace sluice
