#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <sys/socket.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

// The listening sockets that the starter of this process has opened and passed to it, by the protocol of
// sd_listen_fds(3). systemd passes those of .socket units. The kernel keeps connections to them while no process
// accepts, so a restart refuses no client. There is one for each process. Thread-safe.
class PassedSockets {
 public:
  static constexpr int kFirst = 3;  // SD_LISTEN_FDS_START

  // Takes the sockets that LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES describe, the first at descriptor `first`, and
  // removes these variables, so that child processes do not take the sockets, too. Takes none if the variables are
  // absent, or meant for a different process. Call it before threads start. Returns InvalidArgument that names a
  // variable with a wrong value, FailedPrecondition if a descriptor is not a listening socket of type SOCK_STREAM or
  // SOCK_SEQPACKET.
  static absl::StatusOr<std::unique_ptr<PassedSockets>> FromEnvironment(int first = kFirst);
  ~PassedSockets();  // closes the sockets that no listener has taken
  PassedSockets(const PassedSockets&) = delete;
  PassedSockets& operator=(const PassedSockets&) = delete;

  // Returns the descriptor of the socket of this type that is bound to this address, in the notation of
  // FormatSocketAddress. The caller must close it. Returns nothing if there is none.
  std::optional<int> Take(const std::string& address, int type = SOCK_STREAM);
  // Returns FailedPrecondition with the sockets that no listener has taken: their clients would wait forever.
  // `fields` names the fields of the config that contain addresses.
  absl::Status CheckAllTaken(const std::string& fields) const;

 private:
  struct Socket {
    int fd = -1;
    int type = SOCK_STREAM;
    std::string address;
    std::string name;  // FileDescriptorName= of its unit
  };
  PassedSockets() = default;

  mutable std::mutex mutex_;
  std::vector<Socket> sockets_;  // that were not taken; guarded by the mutex
};

}  // namespace sluice
