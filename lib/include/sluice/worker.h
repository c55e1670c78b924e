#pragma once

#include <memory>

#include <grpcpp/server_builder.h>
#include <grpcpp/support/server_interceptor.h>

namespace sluice {

// For servers that aggregators reach through Sluice. They need none of it; but an aggregator that does not know how
// large an answer will be can only guess, by what the method answered before, and this one tells it.
//
// Every unary method of the server then announces the bytes of its response message, as serialized and before
// compression, in initial metadata, "sluice-response-bytes". It works with gRPC's synchronous, callback and
// completion-queue servers. Nothing is announced where the handler sends its initial metadata itself before the
// response, with an error, and by streams and by generic services, whose messages gRPC does not know beforehand.
// Experimental as gRPC's interceptors are.
//
//     grpc::ServerBuilder builder;
//     ...
//     sluice::AnnounceResponseSizes(builder);
//
// Takes the place of the interceptors that the builder has; see ResponseSizeAnnouncer for a server with others.
void AnnounceResponseSizes(grpc::ServerBuilder& builder);

// The same as one of the interceptors for SetInterceptorCreators. Put it last: it announces the message as the
// interceptors before it have left it.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> ResponseSizeAnnouncer();

}  // namespace sluice
