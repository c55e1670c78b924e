#include "tools/sluice_calibrate/probe_connections.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);
constexpr size_t kHandshakesAtOnce = 8;

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own for each channel
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // As the channels of an aggregator: no probes of gRPC's own between ours, and a window for the largest answer.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20);
  return arguments;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeConnections>> ProbeConnections::Open(const std::vector<std::string>& workers,
                                                                         size_t count) {
  auto opened = std::make_unique<ProbeConnections>();
  auto& connections = opened->connections_;
  for (size_t i = 0; i < count; ++i) {
    const std::string& worker = workers[i % workers.size()];
    auto channel = grpc::CreateCustomChannel(worker, grpc::InsecureChannelCredentials(), Arguments());
    connections.push_back({worker, channel, v1::ProbeService::NewStub(channel)});
  }
  for (size_t first = 0; first < count; first += kHandshakesAtOnce) {
    const size_t end = std::min(first + kHandshakesAtOnce, count);
    for (size_t i = first; i < end; ++i) connections[i].channel->GetState(/*try_to_connect=*/true);
    for (size_t i = first; i < end; ++i) {
      if (connections[i].channel->WaitForConnected(std::chrono::system_clock::now() + kPatience)) continue;
      return absl::UnavailableError(absl::StrCat("worker ", connections[i].worker, ": cannot connect within ",
                                                 std::chrono::seconds(kPatience).count(), " s"));
    }
  }
  return opened;
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

absl::StatusOr<int64_t> ProbeConnections::LostPackets() const {
  int64_t lost = 0;
  absl::flat_hash_set<std::pair<std::string, std::string>> counted;
  for (size_t i = 0; i < size(); ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::GetTcpCountersResponse response;
    const grpc::Status status = stub(i).GetTcpCounters(&context, {}, &response);
    if (!status.ok()) return Explain(i, status);
    for (const v1::TcpConnection& connection : response.connections()) {
      if (!counted.emplace(connection.local(), connection.remote()).second) continue;
      lost += int64_t{connection.retransmitted_packets()} - connection.duplicate_packets();
    }
  }
  return std::max<int64_t>(lost, 0);
}

}  // namespace sluice
