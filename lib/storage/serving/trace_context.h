#pragma once

#include <grpcpp/server_context.h>

#include "sluice/metadata.h"

namespace sluice {

// Returns the trace context of a served call, for the calls that it causes: "traceparent" and "tracestate" of W3C.
// Empty if there is none, or if it cannot be forwarded.
Metadata TraceContext(const grpc::ServerContextBase& context);

}  // namespace sluice
