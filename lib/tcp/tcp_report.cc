#include "lib/tcp/tcp_report.h"

#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/tcp/peer_name.h"

namespace sluice {
namespace {

std::string NameOf(const TcpEndpoint& endpoint) {
  std::ostringstream name;
  name << endpoint;
  return name.str();
}

}  // namespace

std::string FormatTcpReport(const TcpReport& report) {
  return absl::StrCat(report.port, " ", report.retransmits, " ", report.rtos);
}

std::optional<TcpReport> ParseTcpReport(std::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(absl::string_view(text.data(), text.size()), ' ');
  uint32_t port = 0;
  TcpReport report;
  if (words.size() != 3 || !absl::SimpleAtoi(words[0], &port) || port > 65535 ||
      !absl::SimpleAtoi(words[1], &report.retransmits) || !absl::SimpleAtoi(words[2], &report.rtos)) {
    return std::nullopt;
  }
  report.port = static_cast<uint16_t>(port);
  return report;
}

void TcpReports::Update(absl::Span<const TcpSocket> sockets) {
  const std::lock_guard<std::mutex> lock(mutex_);
  absl::flat_hash_map<std::string, Connection> connections;
  bool due = false;
  for (const TcpSocket& socket : sockets) {
    if (socket.info.retransmitted_packets == 0) continue;
    const std::string name = NameOf(socket.remote);
    Connection& connection = connections[name];
    if (const auto found = connections_.find(name); found != connections_.end()) connection.last = found->second.last;
    connection.now = {.port = socket.remote.port(),
                      .retransmits = socket.info.retransmitted_packets,
                      .rtos = socket.info.rtos.value_or(0)};
    due = due || connection.now != connection.last;
  }
  connections_ = std::move(connections);
  due_ = due;
}

std::optional<TcpReport> TcpReports::Take(absl::FunctionRef<std::string()> peer) {
  if (!due_) return std::nullopt;
  const std::optional<TcpEndpoint> endpoint = ParsePeerName(peer());
  if (!endpoint.has_value()) return std::nullopt;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = connections_.find(NameOf(*endpoint));
  if (found == connections_.end() || found->second.now == found->second.last) return std::nullopt;
  found->second.last = found->second.now;
  return found->second.now;
}

}  // namespace sluice
