#include "tests/system/interop/grpc_interop_cases.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <utility>

#include "sluice/fan_out.h"
#include "sluice/link.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "grpc_testing.pb.h"

// See https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md. FullDuplexCall is bidirectional. A
// case that sends one request to it and half-closes looks like a server-streaming call on the wire.
namespace sluice::testing {
namespace {

using grpc::testing::Empty;
using grpc::testing::OrcaLoadReport;
using grpc::testing::SimpleRequest;
using grpc::testing::SimpleResponse;
using grpc::testing::StreamingOutputCallRequest;
using grpc::testing::StreamingOutputCallResponse;

const Method<Empty, Empty> kEmptyCall{"/grpc.testing.TestService/EmptyCall"};
const Method<SimpleRequest, SimpleResponse> kUnaryCall{"/grpc.testing.TestService/UnaryCall"};
const Method<StreamingOutputCallRequest, StreamingOutputCallResponse> kStreamingOutputCall{
    "/grpc.testing.TestService/StreamingOutputCall", /*server_streaming=*/true};
const Method<StreamingOutputCallRequest, StreamingOutputCallResponse> kFullDuplexCall{
    "/grpc.testing.TestService/FullDuplexCall", /*server_streaming=*/true};

constexpr int kLargeRequestBytes = 271'828;
constexpr int kLargeResponseBytes = 314'159;
constexpr absl::Duration kPatience = absl::Minutes(1);

absl::Status Unless(bool holds, const std::string& what) {
  return holds ? absl::OkStatus() : absl::FailedPreconditionError(what);
}

template <class Response>
using Collected = std::pair<FanOutResult, std::vector<std::vector<Response>>>;

// The link and the fan-out of one case. One for each case. Not thread-safe.
class Client {
 public:
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const InteropServer& server) {
    auto link = Link::Create(Link::Options());
    if (!link.ok()) return link.status();
    auto fan_out = FanOut::Create(*link, {.workers = server.addresses, .tls = server.tls});
    if (!fan_out.ok()) return fan_out.status();
    auto client = std::make_unique<Client>();
    client->server = server;
    client->link = *std::move(link);
    client->fan_out = *std::move(fan_out);
    return client;
  }

  size_t workers() const { return server.addresses.size(); }
  // Lets every worker fail, because a case may expect a failure of each.
  int fail_limit() const { return static_cast<int>(workers()); }

  // Sends the same request to all workers.
  template <class Request, class Response>
  Collected<Response> Ask(const Method<Request, Response>& method, const Request& request, FanOutOptions options = {}) {
    if (options.timeout == FanOutOptions().timeout) options.timeout = kPatience;
    return fan_out->Collect(
        method, [&](size_t) { return sluice::Ask<Request>(request); }, options);
  }

  InteropServer server;
  std::shared_ptr<Link> link;
  std::unique_ptr<FanOut> fan_out;
};

SimpleRequest LargeRequest() {
  SimpleRequest request;
  request.set_response_size(kLargeResponseBytes);
  request.mutable_payload()->set_body(std::string(kLargeRequestBytes, '\0'));
  return request;
}

StreamingOutputCallRequest StreamOf(const std::vector<int>& sizes) {
  StreamingOutputCallRequest request;
  for (int size : sizes) request.add_response_parameters()->set_size(size);
  return request;
}

// Checks that each worker has responded with zeros, in payloads of these sizes and this order.
template <class Response>
absl::Status CheckPayloads(const Client& client, const Collected<Response>& collected, const std::vector<int>& sizes) {
  const auto& [result, responses] = collected;
  if (!result.status.ok()) return result.status;
  absl::Status status = Unless(result.answered == client.workers(),
                               absl::StrCat(result.answered, " of ", client.workers(), " workers answered"));
  for (const std::vector<Response>& messages : responses) {
    std::vector<int> came;
    for (const Response& message : messages) {
      const std::string& body = message.payload().body();
      came.push_back(static_cast<int>(body.size()));
      status.Update(Unless(body.find_first_not_of('\0') == std::string::npos, "a payload has bytes that are not zero"));
    }
    status.Update(Unless(came == sizes, absl::StrCat("payloads of ", absl::StrJoin(came, ", "), " bytes came, not of ",
                                                     absl::StrJoin(sizes, ", "))));
  }
  return status;
}

// Checks that each worker has failed with this code. A null `message` accepts any message.
absl::Status CheckFailures(const Client& client, const FanOutResult& result, absl::StatusCode code,
                           const char* message = nullptr) {
  absl::Status status = Unless(result.failures.size() == client.workers(),
                               absl::StrCat(result.failures.size(), " of ", client.workers(), " workers failed"));
  for (const WorkerFailure& failure : result.failures) {
    const bool as_wanted = failure.status.code() == code && (message == nullptr || failure.status.message() == message);
    status.Update(Unless(as_wanted, absl::StrCat("a call ended with ", failure.status.ToString(), ", not with ",
                                                 absl::StatusCodeToString(code), ": ", message ? message : "")));
  }
  return status;
}

absl::Status EmptyUnary(Client& client) {
  const auto [result, responses] = client.Ask(kEmptyCall, Empty());
  if (!result.status.ok()) return result.status;
  return Unless(result.answered == client.workers() && result.response_bytes == 0,
                absl::StrCat(result.answered, " workers answered with ", result.response_bytes, " bytes; each of ",
                             client.workers(), " must answer with none"));
}

absl::Status LargeUnary(Client& client) {
  return CheckPayloads(client, client.Ask(kUnaryCall, LargeRequest()), {kLargeResponseBytes});
}

absl::Status CompressedAndNot(Client& client) {
  absl::Status status;
  for (const bool compressed : {true, false}) {
    SimpleRequest request = LargeRequest();
    request.mutable_expect_compressed()->set_value(compressed);
    status.Update(CheckPayloads(client, client.Ask(kUnaryCall, request, {.compress_requests = compressed}),
                                {kLargeResponseBytes}));
  }
  return status;
}

absl::Status ClientCompressedUnary(Client& client) {
  SimpleRequest probe = LargeRequest();
  probe.mutable_expect_compressed()->set_value(true);
  const auto [result, responses] = client.Ask(kUnaryCall, probe, {.fail_limit = client.fail_limit()});
  absl::Status status = CheckFailures(client, result, absl::StatusCode::kInvalidArgument);
  status.Update(CompressedAndNot(client));
  return status;
}

absl::Status ServerCompressedUnary(Client& client) {
  absl::Status status;
  for (const bool compressed : {true, false}) {
    SimpleRequest request = LargeRequest();
    request.mutable_response_compressed()->set_value(compressed);
    status.Update(CheckPayloads(client, client.Ask(kUnaryCall, request), {kLargeResponseBytes}));
  }
  return status;
}

absl::Status ServerStreaming(Client& client) {
  const std::vector<int> sizes = {31415, 9, 2653, 58979};
  return CheckPayloads(client, client.Ask(kStreamingOutputCall, StreamOf(sizes)), sizes);
}

absl::Status ServerCompressedStreaming(Client& client) {
  const std::vector<int> sizes = {31415, 92653};
  StreamingOutputCallRequest request = StreamOf(sizes);
  request.mutable_response_parameters(0)->mutable_compressed()->set_value(true);
  request.mutable_response_parameters(1)->mutable_compressed()->set_value(false);
  return CheckPayloads(client, client.Ask(kStreamingOutputCall, request), sizes);
}

// The suite sends no request here. This client sends a request for no responses.
absl::Status EmptyStream(Client& client) {
  return CheckPayloads(client, client.Ask(kFullDuplexCall, StreamingOutputCallRequest()), {});
}

const Metadata kEcho = {{"x-grpc-test-echo-initial", "test_initial_metadata_value"},
                        {"x-grpc-test-echo-trailing-bin", "\xab\xab\xab"}};

bool Has(const Metadata& metadata, const Metadata::value_type& entry) {
  return std::find(metadata.begin(), metadata.end(), entry) != metadata.end();
}

absl::Status CheckEcho(const Client& client, const FanOutResult& result) {
  absl::Status status = Unless(result.responses.size() == client.workers(), "no metadata came");
  for (const ResponseMetadata& response : result.responses) {
    status.Update(Unless(Has(response.initial, kEcho[0]), "the initial metadata came back otherwise"));
    status.Update(Unless(Has(response.trailing, kEcho[1]), "the trailing metadata came back otherwise"));
  }
  return status;
}

absl::Status CustomMetadata(Client& client) {
  const FanOutOptions options{.metadata = kEcho, .keep_response_metadata = true};
  const auto unary = client.Ask(kUnaryCall, LargeRequest(), options);
  absl::Status status = CheckPayloads(client, unary, {kLargeResponseBytes});
  status.Update(CheckEcho(client, unary.first));
  StreamingOutputCallRequest request = StreamOf({kLargeResponseBytes});
  request.mutable_payload()->set_body(std::string(kLargeRequestBytes, '\0'));
  const auto stream = client.Ask(kFullDuplexCall, request, options);
  status.Update(CheckPayloads(client, stream, {kLargeResponseBytes}));
  status.Update(CheckEcho(client, stream.first));
  return status;
}

// Returns OK if the server has returned the requested status unchanged.
template <class Request, class Response>
absl::Status CheckEchoedStatus(Client& client, const Method<Request, Response>& method, const char* message) {
  Request request;
  request.mutable_response_status()->set_code(static_cast<int>(absl::StatusCode::kUnknown));
  request.mutable_response_status()->set_message(message);
  const auto [result, responses] = client.Ask(method, request, {.fail_limit = client.fail_limit()});
  return CheckFailures(client, result, absl::StatusCode::kUnknown, message);
}

absl::Status StatusCodeAndMessage(Client& client) {
  absl::Status status = CheckEchoedStatus(client, kUnaryCall, "test status message");
  status.Update(CheckEchoedStatus(client, kFullDuplexCall, "test status message"));
  return status;
}

absl::Status SpecialStatusMessage(Client& client) {
  return CheckEchoedStatus(client, kUnaryCall,
                           "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n");
}

absl::Status CheckUnimplemented(Client& client, const std::string& path) {
  const auto [result, responses] = client.Ask(Method<Empty, Empty>{path}, Empty(), {.fail_limit = client.fail_limit()});
  return CheckFailures(client, result, absl::StatusCode::kUnimplemented);
}
absl::Status UnimplementedMethod(Client& client) {
  return CheckUnimplemented(client, "/grpc.testing.TestService/UnimplementedCall");
}
absl::Status UnimplementedService(Client& client) {
  return CheckUnimplemented(client, "/grpc.testing.UnimplementedService/UnimplementedCall");
}

// The suite's server sleeps because it waits for more requests; this request tells it to sleep. With the suite's
// deadline of 1 ms, the deadline mostly passes before the request is sent.
absl::Status TimeoutOnSleepingServer(Client& client) {
  StreamingOutputCallRequest request = StreamOf({1});
  request.mutable_response_parameters(0)->set_interval_us(10'000'000);
  request.mutable_payload()->set_body(std::string(27'182, '\0'));
  absl::Status status = LargeUnary(client);  // connects first
  for (const auto timeout : {absl::Milliseconds(1), absl::Milliseconds(100)}) {
    const auto [result, responses] = client.Ask(kFullDuplexCall, request, {.timeout = timeout});
    status.Update(
        Unless(absl::IsDeadlineExceeded(result.status), absl::StrCat("it ended with ", result.status.ToString())));
  }
  return status;
}

absl::Status CancelAfterFirstResponse(Client& client) {
  StreamingOutputCallRequest request = StreamOf({31'415, 1});
  request.mutable_response_parameters(1)->set_interval_us(10'000'000);
  request.mutable_payload()->set_body(std::string(27'182, '\0'));
  const auto responded = std::make_shared<std::promise<void>>();
  const auto ended = std::make_shared<std::promise<absl::Status>>();
  const auto call = client.fan_out->CallAsync(
      kFullDuplexCall, [&](size_t) { return Ask<StreamingOutputCallRequest>(request); },
      [responded, left = client.workers()](size_t, const StreamingOutputCallResponse&) mutable {
        if (--left == 0) responded->set_value();
        return absl::OkStatus();
      },
      {.timeout = kPatience}, [ended](const FanOutResult& result) { ended->set_value(result.status); });
  auto response = responded->get_future();
  if (response.wait_for(absl::ToChronoSeconds(kPatience)) != std::future_status::ready) {
    return absl::DeadlineExceededError("no first response came");
  }
  call->Cancel();
  const absl::Status status = ended->get_future().get();
  return Unless(absl::IsCancelled(status), absl::StrCat("it ended with ", status.ToString()));
}

absl::Status RpcSoak(Client& client) {
  absl::Status status;
  for (int i = 0; i < client.server.soak_iterations; ++i) status.Update(LargeUnary(client));
  return status;
}

absl::Status ChannelSoak(Client& client) {
  absl::Status status;
  for (int i = 0; i < client.server.soak_iterations; ++i) {
    auto anew = Client::Connect(client.server);
    status.Update(anew.ok() ? LargeUnary(**anew) : anew.status());
  }
  return status;
}

absl::Status ConcurrentLargeUnary(Client& client) {
  const SimpleRequest request = LargeRequest();
  std::atomic<int64_t> bytes = 0;
  std::vector<std::future<absl::Status>> ends;
  const int64_t calls = client.server.concurrent_calls;
  for (int64_t i = 0; i < calls; ++i) {
    const auto ended = std::make_shared<std::promise<absl::Status>>();
    ends.push_back(ended->get_future());
    client.fan_out->CallAsync(
        kUnaryCall,
        [&](size_t worker) -> std::optional<Ask<SimpleRequest>> {
          if (worker != static_cast<size_t>(i) % client.workers()) return std::nullopt;
          return Ask<SimpleRequest>(request);
        },
        [&](size_t, const SimpleResponse& response) {
          bytes += static_cast<int64_t>(response.payload().body().size());
          return absl::OkStatus();
        },
        {.timeout = kPatience}, [ended](const FanOutResult& result) { ended->set_value(result.status); });
  }
  absl::Status status;
  for (auto& end : ends) status.Update(end.get());
  status.Update(Unless(bytes == calls * kLargeResponseBytes, absl::StrCat(bytes.load(), " bytes came")));
  return status;
}

absl::Status OrcaPerRpc(Client& client) {
  SimpleRequest request;
  auto* const report = request.mutable_orca_per_query_report();
  report->set_cpu_utilization(0.8210);
  report->set_memory_utilization(0.5847);
  (*report->mutable_request_cost())["cost"] = 3456.32;
  (*report->mutable_utilization())["util"] = 0.30499;
  const auto [result, responses] = client.Ask(kUnaryCall, request, {.keep_response_metadata = true});
  absl::Status status = result.status;
  status.Update(Unless(result.responses.size() == client.workers(), "no metadata came"));
  for (const ResponseMetadata& response : result.responses) {
    const auto field = std::find_if(response.trailing.begin(), response.trailing.end(),
                                    [](const auto& entry) { return entry.first == "endpoint-load-metrics-bin"; });
    OrcaLoadReport load;
    const bool as_told = field != response.trailing.end() && load.ParseFromString(field->second) &&
                         load.cpu_utilization() == report->cpu_utilization() &&
                         load.mem_utilization() == report->memory_utilization() &&
                         load.request_cost().count("cost") == 1 && load.request_cost().at("cost") == 3456.32 &&
                         load.utilization().count("util") == 1 && load.utilization().at("util") == 0.30499;
    status.Update(Unless(as_told, absl::StrCat("the load report came otherwise: ", load.ShortDebugString())));
  }
  return status;
}

using Case = absl::Status (*)(Client&);
const std::map<std::string, Case>& Cases() {
  static const std::map<std::string, Case> cases = {
      {"cancel_after_first_response", CancelAfterFirstResponse},
      {"channel_soak", ChannelSoak},
      {"client_compressed_unary", ClientCompressedUnary},
      {"client_compressed_unary_noprobe", CompressedAndNot},  // grpc-java's; the server need not detect compression
      {"concurrent_large_unary", ConcurrentLargeUnary},
      {"custom_metadata", CustomMetadata},
      {"empty_stream", EmptyStream},
      {"empty_unary", EmptyUnary},
      {"large_unary", LargeUnary},
      {"orca_per_rpc", OrcaPerRpc},
      {"rpc_soak", RpcSoak},
      {"server_compressed_streaming", ServerCompressedStreaming},
      {"server_compressed_unary", ServerCompressedUnary},
      {"server_streaming", ServerStreaming},
      {"special_status_message", SpecialStatusMessage},
      {"status_code_and_message", StatusCodeAndMessage},
      {"timeout_on_sleeping_server", TimeoutOnSleepingServer},
      {"unimplemented_method", UnimplementedMethod},
      {"unimplemented_service", UnimplementedService},
  };
  return cases;
}

}  // namespace

std::vector<std::string> InteropCases() {
  std::vector<std::string> names;
  for (const auto& [name, play] : Cases()) names.push_back(name);
  return names;
}

absl::Status PlayInteropCase(const std::string& name, const InteropServer& server) {
  const auto found = Cases().find(name);
  if (found == Cases().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("test_case: \"", name, "\" is not one of ", absl::StrJoin(InteropCases(), ", ")));
  }
  auto client = Client::Connect(server);
  return client.ok() ? found->second(**client) : client.status();
}

}  // namespace sluice::testing
