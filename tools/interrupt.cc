#include "tools/interrupt.h"

#include <cerrno>
#include <csignal>

#include <poll.h>
#include <sys/signalfd.h>

namespace sluice {

absl::StatusOr<FileDescriptor> CatchInterrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  // Block the signals, so that a signal between two reads of the descriptor is not lost, as with a handler and a flag.
  if (sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) return ErrnoStatus(errno, "cannot block signals");
  FileDescriptor fd(signalfd(-1, &signals, SFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot wait for signals");
  return fd;
}

bool Interrupted(const FileDescriptor& interrupts) {
  pollfd wanted = {.fd = interrupts.get(), .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, 0) > 0;
}

}  // namespace sluice
