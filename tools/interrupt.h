#pragma once

#include "absl/status/statusor.h"
#include "lib/storage/stripe/file_descriptor.h"

namespace sluice {

// Returns a descriptor that becomes readable on SIGINT, SIGTERM or SIGHUP. These signals no longer end the process, so
// the code that waits for the descriptor can stop in order. Call it before any thread is started.
absl::StatusOr<FileDescriptor> CatchInterrupts();

// Returns true if such a signal has arrived.
bool Interrupted(const FileDescriptor& interrupts);

}  // namespace sluice
