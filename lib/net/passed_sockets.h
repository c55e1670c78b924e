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

  // A field of the config and an address of it, as ParseSocketAddress or ResolveListenAddress takes it.
  struct Configured {
    std::string field;
    std::string address;
    int type = SOCK_STREAM;
  };
  // Returns FailedPrecondition with the sockets that serve none of these addresses, and the addresses: the clients of
  // these sockets would wait forever. An empty address is none. Call it before a listener opens.
  absl::Status Check(std::vector<Configured> config) const;
  // Returns the descriptor of the socket of this type that serves this address, in the notation of FormatSocketAddress.
  // A socket serves the address to which it is bound. [::]:PORT serves 0.0.0.0:PORT, too, if it has both families. The
  // caller must close it. Returns nothing if there is none.
  std::optional<int> Take(const std::string& address, int type = SOCK_STREAM);

 private:
  struct Socket {
    int fd = -1;
    int type = SOCK_STREAM;
    std::string address;
    std::string name;  // FileDescriptorName= of its unit
    bool both_families = false;
  };
  static std::vector<Socket>::const_iterator Find(const std::vector<Socket>& sockets, const std::string& address,
                                                  int type);
  PassedSockets() = default;

  mutable std::mutex mutex_;
  std::vector<Socket> sockets_;  // that were not taken; guarded by the mutex
};

}  // namespace sluice
