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
#include "lib/rpc/worker_connection.h"
#include "lib/telemetry/worker_table.h"

namespace sluice {

// One channel to each worker, in the order of the stripe, and with grants a second one for answers that are held. They
// connect when they are first used, and resolve the worker's name anew when a connection is lost. One a BlockReader or
// FanOut. Thread-safe after creation.
class WorkerChannels {
 public:
  struct Options {
    bool may_hold = false;                                  // answers may have to wait at their workers
    std::shared_ptr<grpc::ChannelCredentials> credentials;  // null: insecure
    int max_response_bytes = 64 << 20;                      // a larger message is an error of its call
    // Not used over loopback, which passes no port. None: the kernel's.
    std::optional<ReceiveWindow> receive_window;

    friend bool operator==(const Options&, const Options&) = default;
  };

  // InvalidArgument for no worker, too many, or an address that is not host:port or a gRPC target such as unix:PATH.
  static absl::Status Validate(const std::vector<std::string>& addresses);

  // For addresses that are valid. No connection is made yet; one that does not resolve shows itself with the first
  // call. Each worker gets a row in the table, which outlives the channels. Channels of `before` to the same addresses
  // are shared, where the options are the same: a connection that stands is not made anew.
  WorkerChannels(const std::vector<std::string>& addresses, WorkerTable& table, const Options& options,
                 const WorkerChannels* before = nullptr);
  ~WorkerChannels();
  WorkerChannels(WorkerChannels&&) = default;
  WorkerChannels& operator=(WorkerChannels&&) = delete;

  size_t size() const { return workers_.size(); }
  const std::string& address(size_t worker) const { return workers_[worker].address; }
  size_t row(size_t worker) const { return workers_[worker].row; }
  // Held: nothing of an answer comes before it is asked for. Only where calls may be.
  std::shared_ptr<grpc::GenericStub> stub(size_t worker, bool held) const {
    return (held ? workers_[worker].held : workers_[worker].open)->stub();
  }

  // The one that a worker is connected over first, and the other one; null: there is none.
  const std::shared_ptr<WorkerConnection>& first(size_t worker) const { return workers_[worker].first(); }
  std::shared_ptr<WorkerConnection> second(size_t worker) const {
    return workers_[worker].held ? workers_[worker].open : nullptr;
  }

  // The worker is given by a name, which may have another address some day.
  bool by_name(size_t worker) const;
  // Another channel like the first or the second one, which begins anew: it asks for the address at once.
  std::shared_ptr<grpc::Channel> MakeChannel(size_t worker, bool first) const;

  // Connects to all of them, over the channels for held answers if there are any, a few at a time: the handshakes of a
  // thousand workers at once would overflow the very buffer that the schedule protects. Returns the workers that are
  // not connected when the time is over; those are connected when they are first called.
  std::vector<size_t> Connect(absl::Duration timeout) const;

 private:
  struct Worker {
    std::string address;
    size_t row = 0;
    std::shared_ptr<WorkerConnection> open;
    std::shared_ptr<WorkerConnection> held;  // null unless calls may be

    const std::shared_ptr<WorkerConnection>& first() const { return held ? held : open; }
  };

  std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, bool held) const;

  WorkerTable& table_;
  const Options options_;
  std::vector<Worker> workers_;
};

}  // namespace sluice
