#include "lib/tcp/incast.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace sluice {
namespace {

// Stalls that begin within this time belong to one burst. Those of a full buffer began within 30 ms. Within 100 ms,
// half of the least retransmission timeout, too many coincide by chance.
constexpr absl::Duration kTogether = absl::Milliseconds(50);
constexpr size_t kLeastMoments = 3;
constexpr double kLeastTogether = 2;     // connections
constexpr double kShareTogether = 0.05;  // of the connections
constexpr size_t kLeastStalls = 3;
constexpr size_t kManyStalls = 10;
constexpr size_t kLeastConnections = 3;
constexpr size_t kLeastBusyRounds = 20;
constexpr double kOneHostShare = 0.8;
constexpr absl::Duration kLateWindow = absl::Milliseconds(110);
constexpr double kBusyShare = 0.5;  // of the peak

bool HasTraffic(const TcpFlow& flow) {
  return (flow.to.has_value() ? flow.busy_rounds : flow.broad_rounds) >= kLeastBusyRounds;
}

struct Together {
  size_t moments = 0;
  size_t stalls = 0;   // in these moments
  size_t most = 0;     // connections
  size_t periods = 0;  // of kTogether, each from a stall on, that hold all stalls
};

// Returns how many stalls at random would begin within kTogether.
double MeanTogether(const TcpFlow& flow) {
  const absl::Duration span = flow.stalls.back().begin - flow.stalls.front().begin + kTogether;
  return static_cast<double>(flow.stalls.size()) * absl::FDivDuration(kTogether, span);
}

// Returns how many connections must stall within kTogether to be more than chance: a share of them all, or three
// standard deviations more than stalls at random.
double NeededTogether(const TcpFlow& flow) {
  if (flow.stalls.empty()) return kLeastTogether;
  const double mean = MeanTogether(flow);
  const double beyond_chance = kLeastTogether + mean + 3 * std::sqrt(mean);
  return std::min(std::max(kLeastTogether, kShareTogether * static_cast<double>(flow.connections)), beyond_chance);
}

// Counts the moments at which enough connections, of at least two hosts, stalled together.
Together CountTogether(const TcpFlow& flow) {
  const double needed = NeededTogether(flow);
  const size_t needed_hosts = std::min<size_t>(flow.hosts, 2);
  Together together;
  for (auto first = flow.stalls.begin(); first != flow.stalls.end();) {
    std::set<size_t> connections;
    std::set<boost::asio::ip::address> hosts;
    auto next = first;
    for (; next != flow.stalls.end() && next->begin <= first->begin + kTogether; ++next) {
      connections.insert(next->connection);
      hosts.insert(next->host);
    }
    ++together.periods;
    together.most = std::max(together.most, connections.size());
    if (static_cast<double>(connections.size()) >= needed && hosts.size() >= needed_hosts) {
      ++together.moments;
      together.stalls += static_cast<size_t>(next - first);
    }
    first = next;
  }
  return together;
}

// Returns whether most stalls are of such moments, and whether a period holds three standard errors more stalls than
// stalls at random. Two of eight connections with a loss every two seconds coincide often enough for the first alone.
bool StallTogether(const TcpFlow& flow, const Together& together) {
  if (together.moments < kLeastMoments || 2 * together.stalls < flow.stalls.size()) return false;
  const double mean = MeanTogether(flow);
  const auto periods = static_cast<double>(together.periods);
  return static_cast<double>(flow.stalls.size()) / periods >= 1 + mean + 3 * std::sqrt(mean / periods);
}

// Returns the peer with the most stalls, and their number.
std::pair<boost::asio::ip::address, size_t> WorstHost(const TcpFlow& flow) {
  std::map<boost::asio::ip::address, size_t> stalls;
  for (const TcpStall& stall : flow.stalls) ++stalls[stall.host];
  const auto worst =
      std::max_element(stalls.begin(), stalls.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return *worst;
}

// Returns whether responses come together, and a retransmission timeout later than usual. Responses of slow workers are
// also a little less late, or later.
bool LateTogether(const TcpFlow& flow) {
  const absl::Duration earliest = flow.median_wait + StallWatch::kLongWait;
  TcpFlow late = {.connections = flow.connections, .hosts = flow.hosts};
  size_t later = 0;
  for (const TcpStall& wait : flow.long_waits) {
    const absl::Duration time = wait.end - wait.begin;
    if (time >= earliest && time < earliest + kLateWindow) late.stalls.push_back(wait);
    if (time >= earliest + kLateWindow && time < earliest + 2 * kLateWindow) ++later;
  }
  return late.stalls.size() >= kManyStalls && late.stalls.size() >= 3 * later &&
         StallTogether(late, CountTogether(late));
}

double BytesPerSecondWhileStalled(const TcpFlow& flow) {
  double bytes = 0;
  absl::Duration time;
  for (const TcpStall& stall : flow.stalls) {
    bytes += static_cast<double>(stall.flow_bytes);
    time += stall.end - stall.seen;
  }
  return time > absl::ZeroDuration() ? bytes / absl::ToDoubleSeconds(time) : 0;
}

std::pair<IncastVerdict, IncastReason> Judge(const TcpFlow& flow, const Together& together, size_t worst_host_stalls,
                                             double stalled_rate) {
  const size_t stalls = flow.stalls.size();
  if (stalls < kLeastStalls) {
    if (!HasTraffic(flow)) return {IncastVerdict::kNotSure, IncastReason::kLittleTraffic};
    return {IncastVerdict::kNo, IncastReason::kNoStalls};
  }
  if (flow.connections < kLeastConnections) {
    // A terminal over a bad path is no service.
    return {IncastVerdict::kNotSure, HasTraffic(flow) ? IncastReason::kFewConnections : IncastReason::kLittleTraffic};
  }
  if (!flow.to.has_value()) {
    // The stalls of one host may come from its uplink. Incast stops responses of several hosts.
    if (flow.hosts < 2) return {IncastVerdict::kNotSure, IncastReason::kFewConnections};
    if (static_cast<double>(worst_host_stalls) >= kOneHostShare * static_cast<double>(stalls)) {
      return {IncastVerdict::kNo, IncastReason::kOneHost};
    }
  }
  if (StallTogether(flow, together)) {
    // A receiver cannot see retransmissions. Packets that only wait in a long queue keep the link busy.
    if (!flow.to.has_value() && stalled_rate >= kBusyShare * flow.peak_bytes_per_second) {
      return {IncastVerdict::kNotSure, IncastReason::kBusyLink};
    }
    return {IncastVerdict::kYes, IncastReason::kAtOnce};
  }
  if (stalls < kManyStalls || together.moments > 0) return {IncastVerdict::kNotSure, IncastReason::kFewStalls};
  return {IncastVerdict::kNo, IncastReason::kOneAtATime};
}

int Severity(const FlowFinding& finding) {
  switch (finding.verdict) {
    case IncastVerdict::kYes:
      return 2;
    case IncastVerdict::kNotSure:
      return 1;
    case IncastVerdict::kNo:
      return 0;
  }
  return 0;
}

}  // namespace

FlowFinding DiagnoseFlow(TcpFlow flow) {
  FlowFinding finding;
  const Together together = CountTogether(flow);
  finding.moments = together.moments;
  finding.most_stalled = together.most;
  size_t worst_host_stalls = 0;
  if (!flow.stalls.empty()) {
    std::set<size_t> connections;
    std::vector<absl::Duration> times;
    for (const TcpStall& stall : flow.stalls) {
      connections.insert(stall.connection);
      times.push_back(stall.end - stall.begin);
    }
    std::sort(times.begin(), times.end());
    finding.stalled_connections = connections.size();
    finding.median_stall = times[times.size() / 2];
    finding.longest_stall = times.back();
    const auto [host, stalls] = WorstHost(flow);
    finding.worst_host = host;
    worst_host_stalls = stalls;
  }
  finding.stalled_bytes_per_second = BytesPerSecondWhileStalled(flow);
  std::tie(finding.verdict, finding.reason) =
      Judge(flow, together, worst_host_stalls, finding.stalled_bytes_per_second);
  const bool is_open = finding.verdict != IncastVerdict::kYes && finding.reason != IncastReason::kBusyLink;
  if (is_open && HasTraffic(flow) && LateTogether(flow)) {
    finding.verdict = IncastVerdict::kNotSure;
    finding.reason = IncastReason::kLateResponses;
  }
  finding.flow = std::move(flow);
  return finding;
}

IncastDiagnosis DiagnoseIncast(std::vector<TcpFlow> flows, const TcpExt& counted) {
  IncastDiagnosis diagnosis;
  size_t stalls = 0;
  for (TcpFlow& flow : flows) {
    stalls += flow.stalls.size();
    FlowFinding finding = DiagnoseFlow(std::move(flow));
    // A terminal, or the one client that is far away, has no verdict.
    if (finding.reason == IncastReason::kLittleTraffic) continue;
    diagnosis.findings.push_back(std::move(finding));
  }
  std::stable_sort(diagnosis.findings.begin(), diagnosis.findings.end(), [](const auto& a, const auto& b) {
    if (Severity(a) != Severity(b)) return Severity(a) > Severity(b);
    return a.flow.stalls.size() != b.flow.stalls.size() ? a.flow.stalls.size() > b.flow.stalls.size()
                                                        : a.flow.bytes > b.flow.bytes;
  });
  if (!diagnosis.findings.empty()) {
    diagnosis.verdict = diagnosis.findings.front().verdict;
    diagnosis.reason = diagnosis.findings.front().reason;
  }
  // Needless timeouts: the acknowledgements came late, through a long queue.
  if (diagnosis.verdict == IncastVerdict::kYes && diagnosis.findings.front().flow.to.has_value() &&
      2 * counted.spurious_rtos > counted.rtos) {
    diagnosis.verdict = IncastVerdict::kNotSure;
    diagnosis.reason = IncastReason::kBusyLink;
  }
  if (diagnosis.verdict != IncastVerdict::kYes && counted.rtos >= kManyStalls && 2 * stalls < counted.rtos) {
    diagnosis.verdict = IncastVerdict::kNotSure;
    diagnosis.reason = IncastReason::kShortConnections;
  }
  return diagnosis;
}

const char* IncastVerdictName(IncastVerdict verdict) {
  switch (verdict) {
    case IncastVerdict::kNo:
      return "no";
    case IncastVerdict::kYes:
      return "yes";
    case IncastVerdict::kNotSure:
      return "not_sure";
  }
  return "";
}

const char* IncastReasonName(IncastReason reason) {
  switch (reason) {
    case IncastReason::kAtOnce:
      return "at_once";
    case IncastReason::kNoStalls:
      return "no_stalls";
    case IncastReason::kOneHost:
      return "one_host";
    case IncastReason::kOneAtATime:
      return "one_at_a_time";
    case IncastReason::kFewStalls:
      return "few_stalls";
    case IncastReason::kFewConnections:
      return "few_connections";
    case IncastReason::kLateResponses:
      return "late_responses";
    case IncastReason::kBusyLink:
      return "busy_link";
    case IncastReason::kShortConnections:
      return "short_connections";
    case IncastReason::kLittleTraffic:
      return "little_traffic";
  }
  return "";
}

}  // namespace sluice
