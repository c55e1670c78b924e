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

#include "sluice/access_record.h"
#include "sluice/link.h"
#include "sluice/metadata.h"
#include "sluice/tls_options.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice {

class FanOutState;
class WorkerDiscovery;
struct WorkerList;

// A unary or server-streaming method of any gRPC service, named by its path: "/package.Service/Method". Request and
// Response are its protobuf messages, or std::string for the serialized bytes.
template <class Request, class Response>
struct Method {
  std::string path;
  bool server_streaming = false;
};

// The request to one worker. Converts from a Request.
template <class Request>
struct Ask {
  Ask(Request message) : request(std::move(message)) {}  // NOLINT(google-explicit-constructor): a map returns either
  Ask(Request message, std::optional<int64_t> bytes, std::vector<size_t> others = {}, Metadata sent = {})
      : request(std::move(message)), response_bytes(bytes), replicas(std::move(others)), metadata(std::move(sent)) {}

  Request request;
  // Size of the response's message in bytes, or of all messages of a stream, if the caller can predict it; 0 to
  // kMaxResponseBytes of sluice/plan.h. A wrong size only costs time, because a ready response states its true size.
  // Default: an upper quantile of the earlier responses of the method.
  std::optional<int64_t> response_bytes;
  // Other workers that can answer the same request, as indices. When a worker fails or is late, the replica that was
  // recently the fastest is tried first. While the worker itself is ejected (Link::Options::outlier_detection), a
  // replica is asked instead.
  std::vector<size_t> replicas;
  // Sent with this request, after FanOutOptions::metadata.
  Metadata metadata;
};

struct FanOutOptions {
  // Time for the whole fan-out, waiting included. The workers receive it as the deadline of their calls. Above 0.
  absl::Duration timeout = absl::Seconds(10);

  // Maximum number of worker failures tolerated; one more fails the fan-out. A worker that has not answered at the
  // deadline has failed. At least 0. Default: 0, or with a quorum the number of workers asked minus the quorum.
  std::optional<int> fail_limit;
  // Finish successfully after this many responses, and cancel the rest: any k of n, such as for reads of an erasure
  // code. `merge` receives exactly this number of unary responses, not counting those that it refuses. The fan-out
  // fails as soon as it cannot reach this number. At least 1. Default: wait until every worker has responded or failed.
  std::optional<int> success_quorum;

  // Time that a worker has for one attempt, from when its request is sent. The time in which its response is ready and
  // waits for the link does not count. An attempt that takes longer has failed, and a replica is tried. Above 0.
  // Default: only the limit of the fan-out.
  absl::Duration attempt_timeout = absl::InfiniteDuration();
  // Statuses after which a replica is tried. A connection that fails counts as kUnavailable. A replica is also tried
  // when an attempt takes longer than attempt_timeout, and when `merge` refuses a response or it does not decompress.
  // gRPC's servers in C++ return kCancelled for calls that arrive while they shut down.
  std::vector<absl::StatusCode> retry_on = {absl::StatusCode::kUnavailable, absl::StatusCode::kCancelled};
  // Maximum share of this FanOut's requests that are retries, 0 to 1. A few are allowed at the start.
  double retry_ratio = 0.2;

  // If a worker's response is not ready after this time from its request, a replica receives the request, too. The
  // first response counts, and the other call is cancelled. Give either a duration above 0, or a quantile between 0 and
  // 1 (both excluded) of the earlier times of the method. A quantile needs a few calls before it hedges. Giving both is
  // an error. Default: no hedges.
  std::optional<absl::Duration> hedge_after;
  std::optional<double> hedge_after_quantile;
  // Maximum share of this FanOut's requests that are hedges, 0 to 1. A few are allowed at the start.
  double hedge_ratio = 0.1;

  // Name of the class of traffic that shares the link for this fan-out (ScheduleOptions::classes of the Link). If it
  // is empty, FanOut::Options names the class. If the link has no such class, the fan-out ends with InvalidArgument.
  std::string traffic_class;

  // Sent to every worker.
  Metadata metadata;
  // If true, the caller's thread compresses a request with gzip if that makes it smaller. A worker that cannot
  // decompress them fails with kUnimplemented. Workers may compress their responses with gzip in any case.
  bool compress_requests = false;
  // Whether FanOutResult::responses is filled.
  bool keep_response_metadata = false;
};

struct WorkerFailure {
  size_t primary = 0;  // the worker that `map` was called for
  size_t worker = 0;   // the worker that failed last: the primary, or a replica
  absl::Status status;
  std::string status_details;  // grpc-status-details-bin: a serialized google.rpc.Status, or empty
};

// The metadata that a worker sent with its response.
struct ResponseMetadata {
  size_t primary = 0;
  size_t worker = 0;
  Metadata initial;
  Metadata trailing;
};

// How a fan-out ended. A request counts once, however many replicas were tried:
// asked = answered + failures.size() + cancelled.
struct FanOutResult {
  // OK, InvalidArgument (an option or an ask is wrong), ResourceExhausted (the queue of the link is full),
  // DeadlineExceeded, Cancelled, or Unavailable (no worker is known yet). If too many workers failed, the status of the
  // last failed worker, with its address.
  absl::Status status;
  size_t asked = 0;      // workers that `map` did not skip
  size_t answered = 0;   // responses that were merged
  size_t cancelled = 0;  // requests that were no longer needed, or ended with the fan-out
  std::vector<WorkerFailure> failures;
  std::vector<ResponseMetadata> responses;  // of the responses, if keep_response_metadata
  size_t retries = 0;                       // requests to replicas after a failure
  size_t hedges = 0;                        // requests to replicas after hedge_after
  size_t hedges_won = 0;                    // hedges whose response counted
  int64_t response_bytes = 0;               // bytes of the messages that were merged

  // The addresses of the workers that the numbers above count. The current addresses of the FanOut may differ. Null if
  // no worker was asked.
  std::shared_ptr<const std::vector<std::string>> workers = nullptr;

  // The share of the requests that were answered, 0 to 1.
  double Coverage() const { return asked == 0 ? 1 : static_cast<double>(answered) / static_cast<double>(asked); }
};

// A handle of a fan-out that CallAsync has started. Thread-safe. Dropping it cancels nothing.
class FanOutCall {
 public:
  virtual ~FanOutCall() = default;
  // Ends the fan-out with Cancelled, unless it has ended already, and cancels its calls at the workers.
  virtual void Cancel() = 0;
};

// Asks many workers at once over one link. The schedule of the link keeps the bytes that are on their way within the
// buffer. The workers may be any gRPC servers. There is one FanOut for each set of workers; any number may share a
// link. Thread-safe. The destructor cancels the calls that are under way and waits for them. In a callback it ends the
// process if there are such calls: it would wait for its own thread.
//
// The callbacks `merge` and `done` run on the link's callback threads, one by default, or with
// Link::Options::inline_callbacks on the link's own thread. They return soon, do not wait, and do not throw: an
// exception ends the process. For one fan-out, no two calls of `merge` overlap, and none follows `done`. `map` runs on
// the caller's thread, before the call returns.
class FanOut {
 public:
  struct Options {
    // 1 to 65536 workers. Each entry is one of these:
    //   host:port, unix:PATH, unix-abstract:NAME   one worker; gRPC's forms with dns:, ipv4: or ipv6: before it, too
    //   shard-{0..31}.shards:7000                  one for each number, both ends included
    //   shard-{0..}.shards:7000                    one for each number, up to the first that has no address; only as
    //                                              the last entry
    //   dns+shards:7000                            one for each address that the name has
    // The last two are looked up every 2 s, and changes have the effect of UpdateWorkers. A range only grows. The
    // addresses of a name come and go; they come after all other workers, sorted. See
    // docs/guides/live-configuration.md.
    std::vector<std::string> workers;
    std::optional<TlsOptions> tls;                      // default: plaintext
    int max_response_bytes = 64 << 20;                  // a call fails at a larger message; above 0
    absl::Duration connect_timeout = absl::Seconds(5);  // how long Connect and the look-ups of Create wait; above 0
    // Class of traffic of fan-outs that name none; empty: the first class of the link. Create returns InvalidArgument
    // for a name that the link does not have.
    std::string traffic_class;
    // Called for each call to a worker, retries and hedges included, once it has ended and its response was merged or
    // dropped. The first fan-out may call it from Create on, and none calls it after the destructor.
    OnAccessRecord on_access;
  };

  // Returns InvalidArgument that names the option, the value and the bound, and the errors of ValidateTls for `tls`.
  static absl::Status Validate(const Options& options);
  // If there are names to look up, Create waits for the name servers, for at most connect_timeout; do not call it from
  // a callback then. Until the first look-up succeeds there are no workers, and fan-outs end with Unavailable.
  static absl::StatusOr<std::unique_ptr<FanOut>> Create(std::shared_ptr<Link> link, Options options);
  ~FanOut();

  size_t workers() const;
  std::string address(size_t worker) const;  // empty if the worker does not exist

  // Replaces the workers, at once or when they are looked up. Workers that stay keep their connections and their
  // history. Fan-outs that have begun end with the workers that they began with. Returns InvalidArgument as Create
  // does.
  absl::Status UpdateWorkers(const std::vector<std::string>& workers);

  // Connects to all workers, and waits for at most connect_timeout. Returns the workers that it could not reach. The
  // link continues to try them, reconnects after every loss, and connects to workers that are added later. Optional:
  // otherwise the first fan-out connects. Do not call it from a callback.
  std::vector<size_t> Connect();

  // Returns the request for a worker: a Request or an Ask<Request>. std::nullopt skips the worker.
  template <class Request>
  using Map = std::function<std::optional<Ask<Request>>(size_t worker)>;
  // Takes a response, or one message of a stream. `worker` is the argument of `map`, even if a replica has responded. A
  // status other than OK refuses the response, and the worker that sent it has failed.
  template <class Response>
  using Merge = std::function<absl::Status(size_t worker, Response response)>;
  using Done = std::function<void(FanOutResult)>;

  // Starts a fan-out. Calls `done` once, if there is one: before it returns when a callback is empty, or options or
  // asks are invalid; otherwise where callbacks run. Once a message of a stream is merged, no replica replaces the
  // worker that sent it.
  template <class Request, class Response>
  std::shared_ptr<FanOutCall> CallAsync(const Method<Request, Response>& method,
                                        const std::type_identity_t<Map<Request>>& map,
                                        std::type_identity_t<Merge<Response>> merge, const FanOutOptions& options,
                                        Done done);

  // Runs a fan-out and waits for its end. In a callback it returns FailedPrecondition: it would wait for its own
  // thread.
  template <class Request, class Response>
  FanOutResult Call(const Method<Request, Response>& method, const std::type_identity_t<Map<Request>>& map,
                    std::type_identity_t<Merge<Response>> merge, const FanOutOptions& options = {});
  // As Call, and keeps every response. Returns the result and, for each worker, its messages: one for a unary method,
  // or none if the worker did not respond. A failed stream leaves the messages that arrived before its failure.
  //
  //   const auto [result, responses] = fan_out->Collect(method, map);
  template <class Request, class Response>
  std::pair<FanOutResult, std::vector<std::vector<Response>>> Collect(const Method<Request, Response>& method,
                                                                      const std::type_identity_t<Map<Request>>& map,
                                                                      const FanOutOptions& options = {});

 private:
  using Addresses = std::shared_ptr<const std::vector<std::string>>;
  struct Asks {
    Addresses workers;                                  // the addresses when the fan-out began; null without a map
    std::vector<std::optional<Ask<std::string>>> asks;  // by worker
  };
  // Does not move the bytes unless the application takes them. Their memory is used again.
  using MergeBytes = std::function<absl::Status(size_t worker, std::string& response)>;

  FanOut(std::shared_ptr<Link> link, Options options, std::vector<TrafficClass> classes);
  Addresses addresses() const;
  void SetWorkers(WorkerList list, std::function<void()> on_looked_up);
  void OnFound(uint64_t update, std::vector<std::string> workers);
  absl::Status NoWorkers() const;
  std::shared_ptr<FanOutCall> Start(const std::string& method, bool server_streaming, Asks asks, MergeBytes merge,
                                    const FanOutOptions& options, Done done);
  FanOutResult Await(const std::string& method, bool server_streaming, Asks asks, MergeBytes merge,
                     const FanOutOptions& options);
  template <class Request>
  Asks Serialize(const Map<Request>& map) const;
  template <class Response>
  static MergeBytes Parse(Merge<Response> merge);

  const std::shared_ptr<Link> link_;
  const Options options_;                    // except for the workers: addresses_ has them
  const std::vector<TrafficClass> classes_;  // of the link, whose names never change
  mutable std::mutex mutex_;
  // Guarded by mutex_, up to look_ups_.
  std::unique_ptr<WorkerList> list_;  // the entries that the workers come from
  uint64_t updates_ = 0;              // number of updates of the list
  Addresses addresses_;
  absl::Status look_ups_;  // the error of the look-ups, or OK
  // Used on the link's thread only.
  std::unique_ptr<FanOutState> state_;
  std::unique_ptr<WorkerDiscovery> discovery_;  // null if there are no names to look up
};

namespace internal {

std::string ToBytes(const google::protobuf::MessageLite& message);
inline std::string ToBytes(std::string bytes) {
  return bytes;
}

// Returns DataLoss if the bytes are not such a message.
absl::Status FromBytes(std::string& bytes, google::protobuf::MessageLite& message);
inline absl::Status FromBytes(std::string& bytes, std::string& message) {
  message = std::move(bytes);
  return absl::OkStatus();
}

}  // namespace internal

template <class Request>
FanOut::Asks FanOut::Serialize(const Map<Request>& map) const {
  if (map == nullptr) return {};
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
  if (merge == nullptr) return nullptr;
  return [merge = std::move(merge)](size_t worker, std::string& bytes) {
    Response response;
    if (absl::Status parsed = internal::FromBytes(bytes, response); !parsed.ok()) return parsed;
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
std::pair<FanOutResult, std::vector<std::vector<Response>>> FanOut::Collect(
    const Method<Request, Response>& method, const std::type_identity_t<Map<Request>>& map,
    const FanOutOptions& options) {
  std::vector<std::vector<Response>> responses;
  size_t asked = 0;
  Map<Request> counting_map;
  if (map != nullptr) {
    counting_map = [&](size_t worker) {
      asked = worker + 1;
      return map(worker);
    };
  }
  FanOutResult result = Call<Request, Response>(
      method, counting_map,
      [&](size_t worker, Response response) {
        if (worker >= responses.size()) responses.resize(worker + 1);
        responses[worker].push_back(std::move(response));
        return absl::OkStatus();
      },
      options);
  if (responses.size() < asked) responses.resize(asked);
  return {std::move(result), std::move(responses)};
}

}  // namespace sluice
