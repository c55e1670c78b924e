#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include <grpcpp/support/client_interceptor.h>

#include "sluice/link.h"

#include "absl/status/statusor.h"

namespace sluice {

// EXPERIMENTAL, as gRPC's interceptors are: it may change or go with any version of gRPC.
struct GatingOptions {
  // What the answer to a call of `method` ("/package.Service/Method") is charged as: the expected bytes of its message,
  // or of all messages of a stream; 0 to kMaxResponseBytes. std::nullopt: calls of the method are not gated; say so of
  // streams that stay open. Called at the start of each call, on its thread.
  std::function<std::optional<int64_t>(std::string_view method)> response_bytes;
};

// Initial metadata of one call in place of GatingOptions::response_bytes, in decimal. It is taken out of what is sent.
inline constexpr char kExpectedResponseBytesKey[] = "sluice-expected-response-bytes";

// EXPERIMENTAL. Gates the calls of client code that stays as it is: give the factory to
// grpc::experimental::CreateCustomChannelWithInterceptors for every channel to a worker behind the link. The start of a
// unary or server-streaming call waits until its answer fits the budget, as in the discipline `rolling`; it waits for
// its turn among all calls of the link, first come first served. Calls that stream requests pass: their answers have
// no end that could be waited for. Works with the synchronous, the completion queue and the callback API.
//
// A call that is refused or ends while it waits ends with a status from here, and its worker hears nothing of it:
// DEADLINE_EXCEEDED at the deadline of its context, CANCELLED when its context is cancelled, RESOURCE_EXHAUSTED when
// the queue is full, INVALID_ARGUMENT when its size is out of bounds.
//
// Mind: what waits in an interceptor is not open for gRPC. A deadline or a cancellation that comes from elsewhere than
// the context of the call (a server call that it was propagated from) is seen when it is let go. Have the channel retry
// nothing (GRPC_ARG_ENABLE_RETRIES 0): a retry is not gated. The factory keeps the link. Fan-outs that are not bound to
// stay as they are do better with sluice::FanOut: there workers think while their answers wait.
//
// InvalidArgument for no link, a link of another discipline than `rolling`, or no response_bytes.
absl::StatusOr<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> CreateGatingInterceptorFactory(
    std::shared_ptr<Link> link, GatingOptions options);

}  // namespace sluice
