#include "tools/sluice_calibrate/grpc_prober.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/sluice_calibrate/probe_connections.h"
#include "tools/sluice_calibrate/probe_loop.h"
#include "tools/sluice_calibrate/processor_use.h"
#include "tools/sluice_calibrate/timer_lateness.h"
#include "tools/sluice_calibrate/wire_counters.h"
#include "tools/unreachable.h"

namespace sluice {
namespace {

// Enough workers for every loop; more would only take longer to connect.
constexpr size_t kMostWorkers = 64;
// Each connection adds the round trip of its handshake, which does not depend on a program.
constexpr size_t kRoundTripConnections = 64;
constexpr int kRoundTripLoops = 4;
constexpr absl::Duration kRoundTripLoopTime = absl::Milliseconds(150);
constexpr size_t kTypicalConnections = 16;
constexpr absl::Duration kPatience = absl::Seconds(5);  // time to find out why there is no connection

void SetPackets(const TcpSocket& socket, PathFacts& path) {
  path.mtu_bytes = socket.info.path_mtu_bytes;
  path.packet_payload_bytes = socket.info.packet_payload_bytes;
  path.ack_frame_bytes = HeaderBytes(socket);
  path.frame_bytes = path.packet_payload_bytes + path.ack_frame_bytes;
}

absl::Status AddKernelRoundTrips(SocketDiag& socket_diag, std::vector<absl::Duration>& round_trips) {
  const auto sockets = socket_diag.OwnConnections();
  if (!sockets.ok()) return sockets.status();
  for (const TcpSocket& socket : *sockets) {
    if (socket.info.min_rtt.has_value()) round_trips.push_back(*socket.info.min_rtt);
  }
  return absl::OkStatus();
}

// Returns the host of host:port.
std::string HostOf(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}

bool IsLocal(const v1::TcpConnection& connection) {
  return HostOf(connection.local()) == HostOf(connection.remote());
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcProber>> GrpcProber::Create(std::vector<std::string> workers,
                                                               std::function<bool()> interrupted,
                                                               ChannelSecurity security) {
  auto socket_diag = SocketDiag::Open();
  if (!socket_diag.ok()) return socket_diag.status();
  return std::unique_ptr<GrpcProber>(
      new GrpcProber(std::move(workers), std::move(interrupted), std::move(security), *std::move(socket_diag)));
}

GrpcProber::GrpcProber(std::vector<std::string> workers, std::function<bool()> interrupted, ChannelSecurity security,
                       SocketDiag socket_diag)
    : workers_(std::move(workers)),
      interrupted_(std::move(interrupted)),
      security_(std::move(security)),
      socket_diag_(std::move(socket_diag)) {}

absl::StatusOr<GrpcProber::Found> GrpcProber::FindWorkers(PathFacts& path) {
  Found found;
  absl::Status first_error;
  ProbeConnections connections(workers_, std::min(workers_.size(), kMostWorkers), security_);
  const std::vector<absl::Status> connected = connections.Connect(interrupted_);
  for (size_t i = 0; i < connections.size(); ++i) {
    if (interrupted_()) return absl::CancelledError("interrupted");
    const absl::Status status = connected[i].ok() ? connections.Probe(i, 1) : connected[i];
    if (!status.ok()) {
      first_error.Update(status);
      path.notes.push_back(absl::StrCat("left out: ", status.message()));
      continue;
    }
    const auto counters = connections.TcpCounters(i);
    path.counts_losses = path.counts_losses && counters.ok();
    const bool local = counters.ok() && counters->connections_size() > 0 && IsLocal(counters->connections(0));
    (local ? found.local : found.remote).push_back(connections.worker(i));
  }
  if (found.local.empty() && found.remote.empty()) {
    if (!absl::IsUnavailable(first_error)) return first_error;
    return ExplainUnreachable(first_error, connections.worker(0), security_.tls(), kPatience);
  }
  return found;
}

absl::StatusOr<PathFacts> GrpcProber::LookAtPath() {
  PathFacts path;
  path.counts_losses = true;
  absl::StatusOr<Found> found = FindWorkers(path);
  if (!found.ok()) return found.status();
  path.same_host = found->remote.empty();
  if (!path.same_host) {
    for (const std::string& worker : found->local) {
      path.notes.push_back(absl::StrCat("left out: worker ", worker, ": it is on this host"));
    }
  }
  workers_ = std::move(path.same_host ? found->local : found->remote);
  counts_losses_ = path.counts_losses;

  const auto connections = ProbeConnections::Open(workers_, workers_.size(), security_, interrupted_);
  if (!connections.ok()) return connections.status();
  const auto sockets = socket_diag_.OwnConnections();
  if (!sockets.ok()) return sockets.status();
  std::set<boost::asio::ip::address> hosts;
  for (const TcpSocket& socket : *sockets) {
    hosts.insert(socket.remote.address());
    SetPackets(socket, path);
  }
  if (hosts.empty()) return absl::FailedPreconditionError("the workers are not reached over TCP; give host:port");
  path.hosts = static_cast<int>(hosts.size());
  return path;
}

absl::StatusOr<TimerSamples> GrpcProber::MeasureTimers() {
  return MeasureTimerLateness(interrupted_);
}

absl::StatusOr<RoundTripSamples> GrpcProber::MeasureRoundTrips() {
  RoundTripSamples samples;
  for (int i = 0; i < kRoundTripLoops; ++i) {
    auto connections = ProbeConnections::Open(workers_, kRoundTripConnections, security_, interrupted_);
    if (!connections.ok()) return connections.status();
    auto loop = RunProbeLoop(**connections, {.in_flight = 1, .payload_bytes = 1, .duration = kRoundTripLoopTime},
                             socket_diag_, interrupted_);
    if (!loop.ok()) return loop.status();
    samples.answers.insert(samples.answers.end(), loop->answer_times.begin(), loop->answer_times.end());
    if (absl::Status status = AddKernelRoundTrips(socket_diag_, samples.kernel); !status.ok()) return status;
  }
  return samples;
}

absl::StatusOr<LoopSample> GrpcProber::RunLoop(const ClosedLoop& loop) {
  const size_t count = std::max(static_cast<size_t>(loop.in_flight), std::min(workers_.size(), kTypicalConnections));
  auto connections = ProbeConnections::Open(workers_, count, security_, interrupted_);
  if (!connections.ok()) return connections.status();
  std::vector<absl::Duration> round_trips;
  if (absl::Status status = AddKernelRoundTrips(socket_diag_, round_trips); !status.ok()) return status;
  const ProcessorUse use;
  auto result = RunProbeLoop(**connections, loop, socket_diag_, interrupted_);
  if (!result.ok()) return result.status();
  result->sample.round_trips = std::move(round_trips);
  result->sample.process_share = use.ProcessShare();
  result->sample.host_share = use.HostShare();
  if (counts_losses_) {
    const auto lost = (*connections)->LostPackets();
    if (!lost.ok()) return lost.status();
    result->sample.lost_packets = *lost;
  }
  return std::move(result->sample);
}

}  // namespace sluice
