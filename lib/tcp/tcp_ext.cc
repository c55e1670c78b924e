#include "lib/tcp/tcp_ext.h"

#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice {
namespace {

using Counters = absl::flat_hash_map<std::string, uint64_t>;

// Lines come in pairs: "TcpExt: name name", then "TcpExt: value value".
absl::StatusOr<Counters> ReadProtocol(const std::string& path, const std::string& protocol) {
  std::ifstream file(path);
  for (std::string names, values; std::getline(file, names) && std::getline(file, values);) {
    std::istringstream name_words(names);
    std::istringstream value_words(values);
    std::string name;
    std::string repeated;
    if (!(name_words >> name) || !(value_words >> repeated) || name != protocol || repeated != protocol) continue;
    Counters counters;
    uint64_t value = 0;
    bool whole = true;
    while (whole && name_words >> name) {
      whole = static_cast<bool>(value_words >> value);
      counters[name] = value;
    }
    if (whole) return counters;
  }
  return absl::UnavailableError(absl::StrCat(path, " has no counters of ", protocol));
}

uint64_t Sum(const Counters& counters, std::initializer_list<absl::string_view> names) {
  uint64_t sum = 0;
  for (const absl::string_view name : names) {
    if (const auto found = counters.find(name); found != counters.end()) sum += found->second;
  }
  return sum;
}

}  // namespace

absl::StatusOr<TcpExt> ReadTcpExt(const std::string& net) {
  const auto extended = ReadProtocol(net + "/netstat", "TcpExt:");
  if (!extended.ok()) return extended.status();
  const auto tcp = ReadProtocol(net + "/snmp", "Tcp:");
  if (!tcp.ok()) return tcp.status();
  return TcpExt{
      .retransmitted_packets = Sum(*tcp, {"RetransSegs"}),
      .rtos = Sum(*extended, {"TCPTimeouts"}),
      .rtos_after_feedback = Sum(*extended, {"TCPSackFailures", "TCPRenoFailures", "TCPSackRecoveryFail",
                                             "TCPRenoRecoveryFail", "TCPLossFailures"}),
      .fast_recoveries = Sum(*extended, {"TCPSackRecovery", "TCPRenoRecovery"}),
      .lost_retransmits = Sum(*extended, {"TCPLostRetransmit"}),
      .spurious_rtos = Sum(*extended, {"TCPSpuriousRTOs"}),
      .tail_loss_probes = Sum(*extended, {"TCPLossProbes"}),
      .tail_loss_recoveries = Sum(*extended, {"TCPLossProbeRecovery"}),
  };
}

}  // namespace sluice
