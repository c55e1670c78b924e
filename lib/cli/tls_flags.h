#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sluice/tls_options.h"
#include "sluice/v1/config.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/tls/server_tls.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 named it
class App;
}

namespace sluice {

// Which connections a program has: those that it takes, those that it makes, or both.
enum class TlsRole { kServer, kClient, kServerAndClient };

// The value of `ca` that stands for the authorities of the system.
inline constexpr char kSystemAuthorities[] = "system";

// What a TlsConfig says of the two directions. Absent: no TLS that way. A plain value.
struct TlsSettings {
  std::optional<ServerTls> server;   // a certificate is given
  std::optional<TlsOptions> client;  // a ca is given
};

// Reads no file. InvalidArgument names the field as the config file has it: one that is given without another that it
// needs, or one that has no effect in this role and would let its user believe in a protection that is not there.
absl::StatusOr<TlsSettings> ParseTlsConfig(const v1::TlsConfig& config, TlsRole role);

// The errors of CheckIdentity and CheckAuthorities for all files that the settings name.
absl::Status CheckTlsFiles(const TlsSettings& settings);

// The flags for the fields that count in this role, in a group of --help. Only flags that are given are written;
// `config` is asked for where they go then.
void AddTlsFlags(CLI::App& app, const std::function<v1::TlsConfig*()>& config, TlsRole role);

// Those of the addresses that other hosts may reach: neither Unix sockets nor on loopback. A host name counts as one of
// these, "localhost" apart.
std::vector<std::string> BeyondThisHost(const std::vector<std::string>& addresses);

// One line in the log where a server has no TLS and listens beyond this host.
void WarnWithoutTls(const std::optional<ServerTls>& tls, const std::vector<std::string>& addresses);

}  // namespace sluice
