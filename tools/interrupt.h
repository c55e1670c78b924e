#pragma once

#include "absl/status/statusor.h"
#include "lib/storage/stripe/file_descriptor.h"

namespace sluice {

// Returns a descriptor that becomes readable on SIGINT, SIGTERM or SIGHUP. These no longer end the process, so that
// whatever waits for it can stop in order. Call it before any thread is started.
absl::StatusOr<FileDescriptor> CatchInterrupts();

// Returns whether one of them has come.
bool Interrupted(const FileDescriptor& interrupts);

}  // namespace sluice
