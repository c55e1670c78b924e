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

// This header needs the target sluice::interceptor, which links gRPC; it is not part of sluice::sluice.
//
// EXPERIMENTAL, as gRPC's interceptors are: any version of gRPC may change or remove it.
struct GatingOptions {
  // Returns what a call of `method` ("/package.Service/Method") is charged for: the expected bytes of its answer's
  // message, or of all messages of a stream; 0 to kMaxResponseBytes. std::nullopt lets calls of the method pass
  // ungated; return it for streams that stay open. It is called at the start of each call, on the caller's thread.
  std::function<std::optional<int64_t>(std::string_view method)> response_bytes;

  // If true, an upper quantile of a method's answers takes the place of response_bytes after the first few answers. Set
  // it only if every stub of the channel is generated from protobuf: gRPC hands answers over without their type.
  bool learn_response_bytes = false;
};

// Initial metadata that overrides GatingOptions::response_bytes for one call, in decimal. It is not sent to the worker.
inline constexpr char kExpectedResponseBytesKey[] = "sluice-expected-response-bytes";

// EXPERIMENTAL. Creates a channel to a worker behind the link, in place of grpc::CreateCustomChannel, for client code
// that stays as it is. A unary or server-streaming call starts when its answer fits the budget, as in the discipline
// `rolling`, and when it is its turn: calls of the link are served first come, first served. Calls that stream requests
// pass ungated, since nobody can wait for the end of their answers. It works with the synchronous, the completion queue
// and the callback interface of generated stubs.
//
// A call that is refused, or that ends while it waits, gets its status here, and the worker never hears of it:
// DEADLINE_EXCEEDED at the deadline of its context, CANCELLED when its context is cancelled, RESOURCE_EXHAUSTED when
// the queue is full, INVALID_ARGUMENT when its size is out of bounds.
//
// gRPC does not consider a call open while it waits in an interceptor. A deadline or a cancellation that does not come
// from the call's own context (but from a server call that it was propagated from) takes effect when the call starts.
// The channel keeps the link alive, and the link ends with its last channel and call; that must not happen in a
// callback.
//
// A call keeps its charge until it ends, since gRPC does not tell how much has come. An answer that takes longer than
// the stall_timeout of the link's schedule counts as stalled, and other calls then start beside it: set stall_timeout
// above the longest time that a worker takes.
//
// `arguments` are kept, except for retries (which would not be gated) and probes of the bandwidth-delay product: both
// are off. Returns InvalidArgument if there is no link, its discipline is not `rolling`, or there is no response_bytes.
absl::StatusOr<std::shared_ptr<grpc::Channel>> CreateGatedChannel(
    std::shared_ptr<Link> link, const std::string& target, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    GatingOptions options, grpc::ChannelArguments arguments = {});

// EXPERIMENTAL. Creates the interceptor alone, for a channel that has other interceptors as well: see
// grpc::experimental::CreateCustomChannelWithInterceptors. The caller sets GRPC_ARG_ENABLE_RETRIES and
// GRPC_ARG_HTTP2_BDP_PROBE to 0. Returns the same errors.
absl::StatusOr<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> CreateGatingInterceptorFactory(
    std::shared_ptr<Link> link, GatingOptions options);

}  // namespace sluice
