#include "tools/sluice_calibrate/grpc_prober.h"

#include <algorithm>
#include <ctime>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/sluice_calibrate/probe_connections.h"
#include "tools/sluice_calibrate/probe_loop.h"
#include "tools/sluice_calibrate/timer_lateness.h"
#include "tools/sluice_calibrate/wire_counters.h"

namespace sluice {
namespace {

// So many workers are enough for every loop; more would only take longer to connect.
constexpr size_t kMostWorkers = 64;
// Each brings the round trip of its handshake, which no program answers.
constexpr size_t kRoundTripConnections = 64;
constexpr absl::Duration kRoundTripTime = absl::Milliseconds(600);
constexpr size_t kUsualConnections = 16;

absl::Duration ProcessorTime() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

// Of a packet that carries nothing but TCP's header and options.
void SetPackets(const TcpInfo& info, PathFacts& path) {
  path.mtu_bytes = info.path_mtu_bytes;
  path.packet_payload_bytes = info.packet_payload_bytes;
  path.ack_frame_bytes = HeaderBytes(info);
  path.frame_bytes = info.packet_payload_bytes + path.ack_frame_bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcProber>> GrpcProber::Create(std::vector<std::string> workers,
                                                               std::function<bool()> interrupted) {
  auto socket_diag = SocketDiag::Open();
  if (!socket_diag.ok()) return socket_diag.status();
  return std::unique_ptr<GrpcProber>(
      new GrpcProber(std::move(workers), std::move(interrupted), *std::move(socket_diag)));
}

GrpcProber::GrpcProber(std::vector<std::string> workers, std::function<bool()> interrupted, SocketDiag socket_diag)
    : workers_(std::move(workers)), interrupted_(std::move(interrupted)), socket_diag_(std::move(socket_diag)) {}

absl::StatusOr<PathFacts> GrpcProber::LookAtPath() {
  PathFacts path;
  path.counts_losses = true;
  std::vector<std::string> answering;
  std::vector<std::unique_ptr<ProbeConnections>> connections;
  absl::Status first_error;
  for (const std::string& worker : workers_) {
    if (interrupted_()) return absl::CancelledError("interrupted");
    if (answering.size() == kMostWorkers) break;
    auto connection = ProbeConnections::Open({worker}, 1);
    absl::Status status = connection.ok() ? (*connection)->Probe(0, 1) : connection.status();
    if (status.ok()) {
      path.counts_losses = path.counts_losses && (*connection)->LostPackets().ok();
      connections.push_back(*std::move(connection));
      answering.push_back(worker);
      continue;
    }
    first_error.Update(status);
    path.notes.push_back(absl::StrCat("left out: ", std::string(status.message())));
  }
  if (answering.empty()) return first_error;
  workers_ = std::move(answering);
  counts_losses_ = path.counts_losses;

  const auto sockets = socket_diag_.OwnConnections();
  if (!sockets.ok()) return sockets.status();
  std::set<boost::asio::ip::address> hosts;
  for (const TcpSocket& socket : *sockets) {
    hosts.insert(socket.remote.address());
    path.same_host = path.same_host || socket.local.address() == socket.remote.address();
    SetPackets(socket.info, path);
  }
  if (hosts.empty()) return absl::FailedPreconditionError("the workers are not reached over TCP; give host:port");
  path.hosts = static_cast<int>(hosts.size());
  return path;
}

absl::StatusOr<TimerSamples> GrpcProber::MeasureTimers() {
  return MeasureTimerLateness(interrupted_);
}

absl::StatusOr<RoundTripSamples> GrpcProber::MeasureRoundTrips() {
  auto connections = ProbeConnections::Open(workers_, kRoundTripConnections);
  if (!connections.ok()) return connections.status();
  auto loop = RunProbeLoop(**connections, {.in_flight = 1, .payload_bytes = 1, .duration = kRoundTripTime},
                           socket_diag_, interrupted_);
  if (!loop.ok()) return loop.status();
  const auto sockets = socket_diag_.OwnConnections();
  if (!sockets.ok()) return sockets.status();
  RoundTripSamples samples{.answers = std::move(loop->answer_times)};
  for (const TcpSocket& socket : *sockets) {
    if (socket.info.min_rtt.has_value()) samples.kernel.push_back(*socket.info.min_rtt);
  }
  return samples;
}

absl::StatusOr<LoopSample> GrpcProber::RunLoop(const ClosedLoop& loop) {
  const size_t count = std::max({static_cast<size_t>(loop.in_flight), std::min(workers_.size(), kUsualConnections)});
  auto connections = ProbeConnections::Open(workers_, count);
  if (!connections.ok()) return connections.status();
  const absl::Duration started = Elapsed();
  const absl::Duration processor_before = ProcessorTime();
  auto result = RunProbeLoop(**connections, loop, socket_diag_, interrupted_);
  if (!result.ok()) return result.status();
  result->sample.processor_share = absl::FDivDuration(ProcessorTime() - processor_before, Elapsed() - started);
  if (counts_losses_) {
    const auto lost = (*connections)->LostPackets();
    if (!lost.ok()) return lost.status();
    result->sample.lost_packets = *lost;
  }
  return std::move(result->sample);
}

}  // namespace sluice
