#pragma once

#include "absl/status/statusor.h"
#include "lib/stripe/file_descriptor.h"

namespace sluice {

// Becomes readable on SIGINT, SIGTERM or SIGHUP, which no longer end the process: what waits for it stops in order.
// Call it before any thread is started.
absl::StatusOr<FileDescriptor> CatchInterrupts();

// Whether one has come.
bool Interrupted(const FileDescriptor& interrupts);

}  // namespace sluice
