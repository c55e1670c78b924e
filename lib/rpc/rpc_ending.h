#pragma once

#include <grpcpp/support/status.h>

#include "sluice/link_schedule.h"

#include "lib/telemetry/aggregator_metrics.h"

namespace sluice {

// What the status of an RPC says to the schedule: whether its answer may still be on its way although it has ended.
inline CallEnd HowEnded(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::UNAVAILABLE:
      return CallEnd::kAborted;
    default:
      return CallEnd::kArrived;
  }
}

// And to the metrics.
inline SruOutcome OutcomeOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return SruOutcome::kOk;
    case grpc::StatusCode::CANCELLED:
      return SruOutcome::kCancelled;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return SruOutcome::kRpcDeadline;
    default:
      return SruOutcome::kRpcError;
  }
}

}  // namespace sluice
