#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/channel.h>

#include "sluice/v1/probe_service.grpc.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/channel_security.h"

namespace sluice {

// New TCP connections to workers, in turn. They have the congestion windows of new connections, and no losses yet. Not
// thread-safe.
class ProbeConnections {
 public:
  // Connects all of them. Returns the error of an unreachable worker, and Cancelled if `interrupted` returns true.
  static absl::StatusOr<std::unique_ptr<ProbeConnections>> Open(const std::vector<std::string>& workers, size_t count,
                                                                const ChannelSecurity& security,
                                                                const std::function<bool()>& interrupted);

  // Creates the connections without connecting them.
  ProbeConnections(const std::vector<std::string>& workers, size_t count, const ChannelSecurity& security);

  // Connects, a few at a time. Returns the status of each connection, with its worker.
  std::vector<absl::Status> Connect(const std::function<bool()>& interrupted);

  size_t size() const { return connections_.size(); }
  const std::string& worker(size_t connection) const { return connections_[connection].worker; }
  v1::ProbeService::Stub& stub(size_t connection) const { return *connections_[connection].stub; }

  // Requests one response, and waits for it.
  absl::Status Probe(size_t connection, uint32_t payload_bytes) const;

  // Returns the TCP counters of the worker's kernel.
  absl::StatusOr<v1::GetTcpCountersResponse> TcpCounters(size_t connection) const;

  // Returns the number of lost packets on all of these connections, which the workers retransmitted.
  absl::StatusOr<int64_t> LostPackets() const;

  // Returns the status of a call, with the worker's name and a remedy.
  absl::Status Explain(size_t connection, const grpc::Status& status) const;

 private:
  struct Connection {
    std::string worker;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::ProbeService::Stub> stub;
  };

  std::vector<Connection> connections_;
};

}  // namespace sluice
