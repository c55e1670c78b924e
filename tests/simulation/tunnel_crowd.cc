#include "tests/simulation/tunnel_crowd.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr double kMostResponseBytes = 200'000;
constexpr size_t kMoreThanProxyKeeps = 500'000;  // the kernel's buffer, and StreamSocket::kMaxBacklogBytes
constexpr int64_t kPacketBytes = 1448;

// From `least` on, uniform on a logarithmic scale.
microseconds DrawTime(Dice& dice, microseconds least, double ratio) {
  return std::chrono::duration_cast<microseconds>(least * std::pow(ratio, dice.Fraction()));
}

}  // namespace

TunnelCrowd::TunnelCrowd(SimulatedNetwork& network, Accept accept)
    : network_(network), dice_(network.dice), accept_(std::move(accept)), thinks_(dice_.OneIn(2)) {
  for (size_t i = 0; i < network_.shape.tunnels; ++i) {
    auto tunnel = std::make_unique<Tunnel>();
    tunnel->worker = std::make_unique<ByteWorker>(network_.events, *network_.port, *network_.liveness, network_.delay);
    tunnel->address = absl::StrCat("10.2.0.", i, ":6379");
    network_.executor->AddByteWorker(tunnel->address, *tunnel->worker);
    if (Fails(8)) {
      network_.faults.Count(Fault::kSlowSender);
      tunnel->worker->uplink().SetRate(network_.schedule.profile.capacity_bytes_per_second * 0.01 *
                                       std::pow(30, dice_.Fraction()));
    }
    tunnel->stream = dice_.OneIn(4);
    Connect(*tunnel);
    tunnels_.push_back(std::move(tunnel));
  }
}

void TunnelCrowd::Connect(Tunnel& tunnel) {
  if (tunnel.stream) {
    network_.faults.Count(Fault::kTunnelStream);
    tunnel.client = std::make_unique<StreamByteClient>(*network_.executor, *network_.loop, tunnel.address);
    return;
  }
  auto client = std::make_unique<ProxiedByteClient>(network_.events, *network_.executor, tunnel.address);
  accept_(client->Connect());
  tunnel.client = std::move(client);
}

void TunnelCrowd::Ask() {
  for (const auto& tunnel : tunnels_) {
    if (!tunnel->client->busy()) Ask(*tunnel);
  }
}

bool TunnelCrowd::Fails(uint64_t one_in) {
  return network_.shape.tunnel_faults && dice_.OneIn(one_in);
}

ByteRequest TunnelCrowd::DrawRequest() {
  ByteRequest request{.key = dice_.Below(1 << 20),
                      .bytes = static_cast<size_t>(std::pow(kMostResponseBytes, dice_.Fraction())),
                      .thinking = microseconds(thinks_ ? dice_.Between(0, 10'000) : dice_.Between(0, 50))};
  if (Fails(20)) {
    network_.faults.Count(Fault::kTunnelPause);
    if (dice_.OneIn(2)) {
      request.thinking = DrawTime(dice_, milliseconds(10), 100);
    } else {
      request.pause_after = dice_.Below(request.bytes + 1);
      request.pause = DrawTime(dice_, microseconds(100), 10'000);
    }
  }
  if (Fails(100)) {
    const bool stops = dice_.OneIn(2);
    network_.faults.Count(stops ? Fault::kTunnelStop : Fault::kTunnelLost);
    request.then = stops ? ByteRequest::Then::kStops : ByteRequest::Then::kLosesConnection;
    request.pause_after = dice_.Below(request.bytes);
  }
  return request;
}

void TunnelCrowd::Ask(Tunnel& tunnel) {
  if (tunnel.client->over()) Connect(tunnel);
  ++tunnel.exchanges;
  std::vector<ByteRequest> requests(1 + (Fails(10) ? dice_.Below(5) : 0));
  if (requests.size() > 1) network_.faults.Count(Fault::kTunnelPipeline);
  for (ByteRequest& request : requests) request = DrawRequest();
  const bool stuck = Fails(20);
  if (stuck) requests.front().bytes = kMoreThanProxyKeeps;
  const auto fails = [](const ByteRequest& request) { return request.then != ByteRequest::Then::kAnswers; };
  const auto stops = [](const ByteRequest& request) { return request.then == ByteRequest::Then::kStops; };
  const bool dies = Fails(50) || std::any_of(requests.begin(), requests.end(), stops);
  // The proxy ends those that do not read if it keeps too much for them. A stream holds its worker back.
  const bool must_be_complete =
      !dies && (!stuck || tunnel.stream) && std::none_of(requests.begin(), requests.end(), fails);
  tunnel.client->Ask(requests, [this, &tunnel, must_be_complete](const ByteClient::Outcome& outcome) {
    OnOutcome(tunnel, outcome, must_be_complete);
  });
  if (stuck) {
    network_.faults.Count(Fault::kTunnelStuck);
    tunnel.client->SetReading(false);
    network_.events.After(DrawTime(dice_, milliseconds(1), 1000), [&tunnel] { tunnel.client->SetReading(true); });
  }
  if (!dies) return;
  network_.faults.Count(Fault::kClientGone);
  const auto patience = DrawTime(dice_, microseconds(100), 10'000);
  network_.events.After(patience, [&tunnel, exchange = tunnel.exchanges] {
    if (tunnel.exchanges == exchange) tunnel.client->Die();
  });
}

void TunnelCrowd::OnOutcome(Tunnel& tunnel, const ByteClient::Outcome& outcome, bool must_be_complete) {
  network_.Note(outcome.complete ? 1 : 2);
  network_.Note(answered_);
  if (outcome.complete) ++answered_;
  if (!outcome.right) network_.Breach(absl::StrCat("the tunnel to ", tunnel.address, " has passed wrong bytes"));
  if (must_be_complete && !outcome.complete) {
    network_.Breach(absl::StrCat("a response of ", tunnel.address, " is not complete"));
  }
  if (stopped_) return;
  const auto idle = microseconds(dice_.OneIn(3) ? dice_.Between(0, 20'000) : dice_.Between(0, 100));
  network_.events.After(idle, [this, &tunnel] {
    if (!stopped_ && !tunnel.client->busy()) Ask(tunnel);
  });
}

size_t TunnelCrowd::open() const {
  return static_cast<size_t>(
      std::count_if(tunnels_.begin(), tunnels_.end(), [](const auto& tunnel) { return tunnel->client->busy(); }));
}

void TunnelCrowd::CheckEnd() {
  if (open() > 0) network_.Breach(absl::StrCat(open(), " exchanges of tunnels have not ended"));
  for (const auto& tunnel : tunnels_) tunnel->client->Die();
  const uint64_t surprises = network_.Counter("sluice_tunnel_surprises_total");
  network_.faults.Count(Fault::kTunnelSurprise, surprises);
  // A window may come late, too, once its client has not read, or has gone.
  const uint64_t late = surprises + network_.Counter("sluice_tunnel_turns_total", "client");
  const int64_t window_bytes = std::max(network_.budget_bytes / 24, 2 * kPacketBytes);
  network_.uncharged_packets = static_cast<int64_t>(late) * ((window_bytes + kPacketBytes - 1) / kPacketBytes);
}

}  // namespace sluice::testing
