#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/rpc/receive_window.h"

namespace sluice {

// One channel to each worker, in the order of the stripe. One a BlockReader. Thread-safe after creation.
class WorkerChannels {
 public:
  struct Options {
    bool held = false;                                      // nothing of an answer may come before it is asked for
    std::shared_ptr<grpc::ChannelCredentials> credentials;  // null: insecure
    int max_response_bytes = 64 << 20;                      // a larger message is an error of its call
    // Not used over loopback, which passes no port. None: the kernel's.
    std::optional<ReceiveWindow> receive_window;
  };

  // InvalidArgument for no worker, too many, or an address that is not host:port or a gRPC target such as unix:PATH.
  static absl::Status Validate(const std::vector<std::string>& addresses);

  // For addresses that are valid. No connection is made yet; one that does not resolve shows itself with the first
  // call.
  WorkerChannels(const std::vector<std::string>& addresses, const Options& options);

  size_t size() const { return workers_.size(); }
  const std::string& address(size_t worker) const { return workers_[worker].address; }
  grpc::GenericStub& stub(size_t worker) const { return *workers_[worker].stub; }

  // Connects to all of them, a few at a time: the handshakes of a thousand workers at once would overflow the very
  // buffer that the schedule protects. Returns the workers that are not connected when the time is over; those are
  // connected when they are first called.
  std::vector<size_t> Connect(absl::Duration timeout) const;

 private:
  struct Worker {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<grpc::GenericStub> stub;
  };

  std::vector<Worker> workers_;
};

}  // namespace sluice
