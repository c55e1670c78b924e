#include "tools/sluice_calibrate/probe_connections.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);
constexpr auto kCheckInterval = std::chrono::milliseconds(100);  // for `interrupted`
constexpr size_t kHandshakesAtOnce = 8;

grpc::ChannelArguments Arguments(const ChannelSecurity& security) {
  grpc::ChannelArguments arguments;
  security.AddTo(arguments);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a separate connection for each channel
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Disable gRPC's own probes between ours, and open a window for the largest response.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20);
  return arguments;
}

// Returns true if the channel connects before the deadline.
bool Await(grpc::Channel& channel, std::chrono::system_clock::time_point deadline,
           const std::function<bool()>& interrupted) {
  while (!interrupted()) {
    const auto check = std::chrono::system_clock::now() + kCheckInterval;
    if (channel.WaitForConnected(std::min(check, deadline))) return true;
    if (check >= deadline) break;
  }
  return false;
}

}  // namespace

ProbeConnections::ProbeConnections(const std::vector<std::string>& workers, size_t count,
                                   const ChannelSecurity& security) {
  for (size_t i = 0; i < count; ++i) {
    const std::string& worker = workers[i % workers.size()];
    auto channel = grpc::CreateCustomChannel(worker, security.credentials(), Arguments(security));
    connections_.push_back({worker, channel, v1::ProbeService::NewStub(channel)});
  }
}

std::vector<absl::Status> ProbeConnections::Connect(const std::function<bool()>& interrupted) {
  std::vector<absl::Status> statuses(size());
  for (size_t first = 0; first < size(); first += kHandshakesAtOnce) {
    const size_t end = std::min(first + kHandshakesAtOnce, size());
    const auto deadline = std::chrono::system_clock::now() + kPatience;
    for (size_t i = first; i < end; ++i) connections_[i].channel->GetState(/*try_to_connect=*/true);
    for (size_t i = first; i < end; ++i) {
      if (Await(*connections_[i].channel, deadline, interrupted)) continue;
      statuses[i] = interrupted() ? absl::CancelledError("interrupted")
                                  : absl::UnavailableError(absl::StrCat("worker ", worker(i), ": no connection within ",
                                                                        std::chrono::seconds(kPatience).count(), " s"));
    }
  }
  return statuses;
}

absl::StatusOr<std::unique_ptr<ProbeConnections>> ProbeConnections::Open(const std::vector<std::string>& workers,
                                                                         size_t count, const ChannelSecurity& security,
                                                                         const std::function<bool()>& interrupted) {
  auto connections = std::make_unique<ProbeConnections>(workers, count, security);
  for (const absl::Status& status : connections->Connect(interrupted)) {
    if (!status.ok()) return status;
  }
  return connections;
}

absl::Status ProbeConnections::Explain(size_t connection, const grpc::Status& status) const {
  const std::string name = absl::StrCat("worker ", worker(connection), ": ");
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::UnimplementedError(
        absl::StrCat(name, "it is older than sluice-calibrate, or was started with --no-probe"));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), absl::StrCat(name, status.error_message()));
}

absl::Status ProbeConnections::Probe(size_t connection, uint32_t payload_bytes) const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  v1::ProbeRequest request;
  request.set_payload_bytes(payload_bytes);
  v1::ProbeResponse response;
  return Explain(connection, stub(connection).Probe(&context, request, &response));
}

absl::StatusOr<v1::GetTcpCountersResponse> ProbeConnections::TcpCounters(size_t connection) const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  v1::GetTcpCountersResponse response;
  const grpc::Status status = stub(connection).GetTcpCounters(&context, {}, &response);
  if (!status.ok()) return Explain(connection, status);
  return response;
}

absl::StatusOr<int64_t> ProbeConnections::LostPackets() const {
  int64_t lost = 0;
  absl::flat_hash_set<std::pair<std::string, std::string>> counted;
  for (size_t i = 0; i < size(); ++i) {
    const auto counters = TcpCounters(i);
    if (!counters.ok()) return counters.status();
    for (const v1::TcpConnection& connection : counters->connections()) {
      if (!counted.emplace(connection.local(), connection.remote()).second) continue;
      lost += int64_t{connection.retransmitted_packets()} - connection.duplicate_packets();
    }
  }
  return std::max<int64_t>(lost, 0);
}

}  // namespace sluice
