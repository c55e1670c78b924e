#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/client_interceptor.h>

#include "sluice/link.h"

#include "absl/status/statusor.h"

namespace sluice {

// The target sluice::interceptor, which links gRPC; sluice::sluice does not have it.
//
// EXPERIMENTAL, as gRPC's interceptors are: it may change or go with any version of gRPC.
struct GatingOptions {
  // What the answer to a call of `method` ("/package.Service/Method") is charged as: the expected bytes of its message,
  // or of all messages of a stream; 0 to kMaxResponseBytes. std::nullopt: calls of the method are not gated; say so of
  // streams that stay open. Called at the start of each call, on its thread.
  std::function<std::optional<int64_t>(std::string_view method)> response_bytes;

  // After the first few answers of a method its calls are charged an upper quantile of what they were instead. Only
  // where every stub of the channel is generated from protobuf: gRPC hands answers over without their type.
  bool learn_response_bytes = false;
};

// Initial metadata of one call in place of GatingOptions::response_bytes, in decimal. It is taken out of what is sent.
inline constexpr char kExpectedResponseBytesKey[] = "sluice-expected-response-bytes";

// EXPERIMENTAL. A channel to a worker behind the link, in place of grpc::CreateCustomChannel, for client code that
// stays as it is. The start of a unary or server-streaming call waits until its answer fits the budget, as in the
// discipline `rolling`, and for its turn among all calls of the link, first come first served. Calls that stream
// requests pass: their answers have no end that could be waited for. Works with the synchronous, the completion queue
// and the callback interface of generated stubs.
//
// A call that is refused, or ends while it waits, ends with a status from here, and its worker hears nothing of it:
// DEADLINE_EXCEEDED at the deadline of its context, CANCELLED when its context is cancelled, RESOURCE_EXHAUSTED when
// the queue is full, INVALID_ARGUMENT when its size is out of bounds.
//
// Mind: what waits in an interceptor is not open for gRPC. A deadline or a cancellation that comes from elsewhere than
// the context of the call (a server call that it was propagated from) is seen when it is let go. The channel keeps the
// link, which then ends with its last channel and call: not on a thread that has to do with one of the others.
//
// What a call is charged for stays until its end, since gRPC does not tell what has come. An answer that takes longer
// than the stall_timeout of the link's schedule is counted as stalled, and others are let go beside it: set it above
// the longest time that a worker takes.
//
// `arguments` are kept, but for retries, which would not be gated (off), and the probes of the bandwidth-delay product
// (off). InvalidArgument for no link, a link of another discipline than `rolling`, or no response_bytes.
absl::StatusOr<std::shared_ptr<grpc::Channel>> CreateGatedChannel(
    std::shared_ptr<Link> link, const std::string& target, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    GatingOptions options, grpc::ChannelArguments arguments = {});

// EXPERIMENTAL. The interceptor alone, for a channel that has others: for
// grpc::experimental::CreateCustomChannelWithInterceptors. The same errors. The caller sets GRPC_ARG_ENABLE_RETRIES and
// GRPC_ARG_HTTP2_BDP_PROBE to 0.
absl::StatusOr<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> CreateGatingInterceptorFactory(
    std::shared_ptr<Link> link, GatingOptions options);

}  // namespace sluice
