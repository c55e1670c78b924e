#include "tools/sluice_diagnose/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/cli/units.h"
#include "tools/json_report.h"

namespace sluice {
namespace {

constexpr size_t kRows = 8;
constexpr char kGuide[] = "In the repository of Sluice, docs/guides/diagnose.md";

std::string NameOf(const TcpFlow& flow) {
  return flow.to.has_value() ? absl::StrCat("responses to ", flow.to->to_string()) : "responses to this host";
}

std::string Count(size_t count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string Peers(const TcpFlow& flow) {
  const std::string connections = Count(flow.connections, "connection");
  return flow.to.has_value() ? absl::StrCat(connections, " to ", flow.to->to_string())
                             : absl::StrCat(connections, " from ", Count(flow.hosts, "host"));
}

double BitsPerSecond(const TcpFlow& flow, absl::Duration watched) {
  return 8 * static_cast<double>(flow.bytes) / absl::ToDoubleSeconds(watched);
}

std::string Seconds(absl::Duration duration) {
  return absl::StrFormat("%.2f s", absl::ToDoubleSeconds(duration));
}

int64_t BurstBytes(const TcpFlow& flow) {
  return static_cast<int64_t>(flow.bytes / std::max<uint64_t>(flow.bursts, 1));
}

std::string YesLine(const FlowFinding& finding, const DiagnosisReport& report) {
  const TcpFlow& flow = finding.flow;
  if (flow.to.has_value()) {
    return absl::StrCat("Yes: ", finding.stalled_connections, " of ", Peers(flow), " waited for TCP timeouts, up to ",
                        finding.most_stalled, " at once, ", finding.moments, " times in ",
                        sluice::FormatDuration(report.watched), ".");
  }
  return absl::StrCat("Yes: responses on up to ", finding.most_stalled, " of ", Peers(flow), " stopped for ",
                      Seconds(finding.median_stall), " at once, ", finding.moments, " times in ",
                      sluice::FormatDuration(report.watched), ", while the link carried ",
                      FormatBitRate(8 * finding.stalled_bytes_per_second), " of ",
                      FormatBitRate(8 * flow.peak_bytes_per_second), ".");
}

std::string VerdictLine(const DiagnosisReport& report) {
  const IncastDiagnosis& diagnosis = report.diagnosis;
  if (diagnosis.reason == IncastReason::kShortConnections) {
    return absl::StrCat("Not sure: the kernel counted ", report.counted.rtos,
                        " TCP timeouts, on connections that closed too soon to be watched.");
  }
  if (diagnosis.findings.empty())
    return "Not sure: there was not enough traffic to other hosts; loopback is left out. Run it under load.";
  const FlowFinding& first = diagnosis.findings.front();
  const std::string stalls = first.flow.stalls.empty() ? "no stalls" : Count(first.flow.stalls.size(), "stall");
  switch (diagnosis.reason) {
    case IncastReason::kAtOnce:
      return YesLine(first, report);
    case IncastReason::kNoStalls:
      return absl::StrCat("No: ", stalls, " on ", Peers(first.flow), ", up to ", first.flow.most_at_once,
                          " active at once.");
    case IncastReason::kOneHost:
      return absl::StrCat("No: almost all of the ", stalls, " are of one worker, ", first.worst_host->to_string(),
                          ". The other hosts are healthy.");
    case IncastReason::kOneAtATime:
      return absl::StrCat("No: ", stalls, " on ", Peers(first.flow),
                          ", but one at a time: the path loses packets at random.");
    case IncastReason::kFewStalls:
      return absl::StrCat("Not sure: ", stalls, " on ", Peers(first.flow), ", up to ", first.most_stalled,
                          " at once, are too few to tell. Run it longer, or under more load.");
    case IncastReason::kFewConnections:
      return absl::StrCat("Not sure: ", stalls, " on ", Peers(first.flow),
                          ", too few to compare. Run it on the aggregator's host as well.");
    case IncastReason::kLateResponses:
      return absl::StrCat("Not sure: many responses on ", Peers(first.flow),
                          " come 0.2 s later than usual, at once. Run it on a worker's host as well.");
    case IncastReason::kBusyLink:
      return absl::StrCat("Not sure: ", stalls, " on ", Peers(first.flow),
                          ", while the link was busy: a long queue looks the same. Run it on a worker's host as well.");
    case IncastReason::kShortConnections:
    case IncastReason::kLittleTraffic:
      break;
  }
  return "";
}

std::string Table(const DiagnosisReport& report) {
  std::string text = absl::StrFormat("%-32s %11s %7s %6s %7s %8s %7s %8s %12s\n", "", "connections", "stalled",
                                     "stalls", "at once", "moments", "median", "longest", "carried");
  size_t rows = 0;
  for (const FlowFinding& finding : report.diagnosis.findings) {
    if (++rows > kRows) {
      absl::StrAppend(&text, "and ", report.diagnosis.findings.size() - kRows, " more, with fewer stalls\n");
      break;
    }
    absl::StrAppend(&text, absl::StrFormat("%-32s %11d %7d %6d %7d %8d %7s %8s %12s\n", NameOf(finding.flow),
                                           finding.flow.connections, finding.stalled_connections,
                                           finding.flow.stalls.size(), finding.most_stalled, finding.moments,
                                           Seconds(finding.median_stall), Seconds(finding.longest_stall),
                                           FormatBitRate(BitsPerSecond(finding.flow, report.watched))));
  }
  return text;
}

std::string Counters(const TcpExt& counted) {
  return absl::StrCat("TCP of this host: ", counted.rtos, " timeouts (", counted.spurious_rtos, " spurious), ",
                      counted.retransmitted_packets, " retransmitted packets (", counted.lost_retransmits,
                      " lost again), ", counted.fast_recoveries, " fast recoveries, ", counted.tail_loss_probes,
                      " tail-loss probes\n");
}

std::string NextStep(const IncastDiagnosis& diagnosis) {
  if (diagnosis.verdict == IncastVerdict::kYes) {
    const TcpFlow& flow = diagnosis.findings.front().flow;
    const std::string workers = flow.to.has_value() ? "WORKERS" : absl::StrCat(flow.connections);
    return absl::StrCat("Next: sluice-plan --capacity RATE_OF_THE_LINK --buffer BUFFER_OF_THE_PORT --workers ", workers,
                        " --sru ", BurstBytes(flow), "\n      ", kGuide, " explains each number.\n");
  }
  if (diagnosis.verdict == IncastVerdict::kNo && !diagnosis.findings.front().flow.to.has_value()) {
    return absl::StrCat("Next: run it on a worker's host as well, as only senders count TCP timeouts.\n      ", kGuide,
                        " explains each number.\n");
  }
  return absl::StrCat("Next: ", kGuide, " explains each number.\n");
}

}  // namespace

std::string ReportText(const DiagnosisReport& report) {
  std::string text = absl::StrCat(VerdictLine(report), "\n\n");
  if (!report.diagnosis.findings.empty()) absl::StrAppend(&text, Table(report), "\n");
  absl::StrAppend(&text, Counters(report.counted), NextStep(report.diagnosis));
  return text;
}

absl::Status WriteReport(const DiagnosisReport& report, const std::string& path) {
  const FlowFinding none;
  const FlowFinding& first = report.diagnosis.findings.empty() ? none : report.diagnosis.findings.front();
  const auto number = [](auto value) { return static_cast<double>(value); };
  const auto name = [](const auto& address) { return address.has_value() ? address->to_string() : std::string(); };
  return WriteJsonReport(path, {{"verdict", IncastVerdictName(report.diagnosis.verdict)},
                                {"reason", IncastReasonName(report.diagnosis.reason)},
                                {"watched_seconds", absl::ToDoubleSeconds(report.watched)},
                                {"responses_to", first.flow.connections == 0 ? ""
                                                 : first.flow.to.has_value() ? name(first.flow.to)
                                                                             : "this host"},
                                {"connections", number(first.flow.connections)},
                                {"hosts", number(first.flow.hosts)},
                                {"stalled_connections", number(first.stalled_connections)},
                                {"stalls", number(first.flow.stalls.size())},
                                {"moments", number(first.moments)},
                                {"most_stalled_at_once", number(first.most_stalled)},
                                {"most_active_at_once", number(first.flow.most_at_once)},
                                {"median_stall_seconds", absl::ToDoubleSeconds(first.median_stall)},
                                {"longest_stall_seconds", absl::ToDoubleSeconds(first.longest_stall)},
                                {"stalled_bps", 8 * first.stalled_bytes_per_second},
                                {"peak_bps", 8 * first.flow.peak_bytes_per_second},
                                {"worst_host", name(first.worst_host)},
                                {"bytes", number(first.flow.bytes)},
                                {"burst_bytes", number(BurstBytes(first.flow))},
                                {"tcp_timeouts", number(report.counted.rtos)},
                                {"tcp_spurious_timeouts", number(report.counted.spurious_rtos)},
                                {"tcp_retransmitted_packets", number(report.counted.retransmitted_packets)},
                                {"tcp_lost_retransmits", number(report.counted.lost_retransmits)},
                                {"tcp_fast_recoveries", number(report.counted.fast_recoveries)},
                                {"tcp_tail_loss_probes", number(report.counted.tail_loss_probes)}});
}

}  // namespace sluice
