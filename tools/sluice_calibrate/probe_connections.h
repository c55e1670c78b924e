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

// Fresh TCP connections to workers, in turns. Their congestion windows are those of new connections, and nothing has
// been lost on them yet. Not thread-safe.
class ProbeConnections {
 public:
  // Connects all. The error of a worker that cannot be reached; Cancelled: `interrupted` has said so.
  static absl::StatusOr<std::unique_ptr<ProbeConnections>> Open(const std::vector<std::string>& workers, size_t count,
                                                                const ChannelSecurity& security,
                                                                const std::function<bool()>& interrupted);

  // Not connected yet.
  ProbeConnections(const std::vector<std::string>& workers, size_t count, const ChannelSecurity& security);

  // Connects, a few at a time. The status of each connection, which names its worker.
  std::vector<absl::Status> Connect(const std::function<bool()>& interrupted);

  size_t size() const { return connections_.size(); }
  const std::string& worker(size_t connection) const { return connections_[connection].worker; }
  v1::ProbeService::Stub& stub(size_t connection) const { return *connections_[connection].stub; }

  // One answer, and wait for it.
  absl::Status Probe(size_t connection, uint32_t payload_bytes) const;

  // What the worker's kernel counts.
  absl::StatusOr<v1::GetTcpCountersResponse> TcpCounters(size_t connection) const;

  // Packets that the workers had to send again because they had not arrived, on all of these connections.
  absl::StatusOr<int64_t> LostPackets() const;

  // The status of a call, with the worker's name and what to do about it.
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
