#pragma once

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

// The connections of a program: those that it accepts (server), that it makes (client), or both.
enum class TlsRole { kServer, kClient, kServerAndClient };

// The value of `ca` that selects the authorities of the system.
inline constexpr char kSystemAuthorities[] = "system";

// The TLS settings of the two directions. Absent: that direction has no TLS. A plain value.
struct TlsSettings {
  std::optional<ServerTls> server;   // a certificate is given
  std::optional<TlsOptions> client;  // a ca is given
};

// Reads no file. Returns InvalidArgument that names the field as in the config file, for two errors: a field lacks
// another field that it needs, or has no effect in this role. Such a field would give its user false confidence in
// protection.
absl::StatusOr<TlsSettings> ParseTlsConfig(const v1::TlsConfig& config, TlsRole role);

// Reads all files that the settings name. Returns the errors of ValidateServerTls, ReadCertificates and ReadIdentity.
absl::Status CheckTlsFiles(const TlsSettings& settings);

// Adds the flags for the fields that apply in this role, in a group of --help, to a program whose config has no field
// for them. Parsing writes only flags that are given; `config` must outlive parsing.
void AddTlsFlags(CLI::App& app, v1::TlsConfig& config, TlsRole role);

// Returns the addresses that other hosts may reach: neither Unix sockets nor on loopback. Host names other than
// "localhost" count as reachable.
std::vector<std::string> BeyondThisHost(const std::vector<std::string>& addresses);

// Logs one line if a server has no TLS and listens beyond this host.
void WarnWithoutTls(const std::optional<ServerTls>& tls, const std::vector<std::string>& addresses);

}  // namespace sluice
