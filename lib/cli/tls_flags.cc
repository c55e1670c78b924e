#include "lib/cli/tls_flags.h"

#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/ip/address.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/cli/config_flags.h"
#include "lib/cli/logging.h"
#include "lib/net/host_port.h"
#include "lib/net/worker_address.h"
#include "lib/tls/pem_file.h"

namespace sluice {
namespace {

absl::Status CheckNeeds(const char* field, const std::string& value, const char* needed_field,
                        const std::string& needed_value) {
  if (value.empty() || !needed_value.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tls.", field, " is \"", value, "\" without tls.", needed_field, "; give both"));
}

absl::Status CheckNoEffect(const char* field, const std::string& value, const char* why) {
  if (value.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tls.", field, " is \"", value, "\" and has no effect: ", why));
}

absl::Status CheckFields(const v1::TlsConfig& config, TlsRole role) {
  absl::Status status = CheckNeeds("key", config.key(), "certificate", config.certificate());
  status.Update(CheckNeeds("certificate", config.certificate(), "key", config.key()));
  status.Update(CheckNeeds("client_ca", config.client_ca(), "certificate", config.certificate()));
  if (role == TlsRole::kServer || config.client_ca().empty()) {
    const bool server = role == TlsRole::kServer;
    status.Update(
        CheckNeeds("crl", config.crl(), server ? "client_ca" : "ca", server ? config.client_ca() : config.ca()));
  }
  if (role == TlsRole::kServer) {
    constexpr char kCallsNobody[] = "this program calls no server; what clients have to show is tls.client_ca";
    status.Update(CheckNoEffect("ca", config.ca(), kCallsNobody));
    status.Update(CheckNoEffect("server_name", config.server_name(), kCallsNobody));
  } else {
    status.Update(CheckNeeds("server_name", config.server_name(), "ca", config.ca()));
  }
  if (role == TlsRole::kClient) {
    status.Update(CheckNoEffect("client_ca", config.client_ca(), "nobody calls this program"));
    // Without `ca` the client would use no TLS: no server would request the certificate, and no byte would be
    // encrypted.
    status.Update(CheckNeeds("certificate", config.certificate(), "ca", config.ca()));
  }
  return status;
}

bool IsBeyondThisHost(const std::string& address) {
  if (IsUnixAddress(address)) return false;
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok()) return true;
  boost::system::error_code error;
  const boost::asio::ip::address ip = boost::asio::ip::make_address(parsed->host, error);
  return error ? parsed->host != "localhost" : !ip.is_loopback();
}

}  // namespace

absl::StatusOr<TlsSettings> ParseTlsConfig(const v1::TlsConfig& config, TlsRole role) {
  if (absl::Status status = CheckFields(config, role); !status.ok()) return status;
  TlsSettings settings;
  if (role != TlsRole::kClient && !config.certificate().empty()) {
    settings.server = ServerTls{.certificate_file = config.certificate(),
                                .key_file = config.key(),
                                .client_ca_file = config.client_ca(),
                                .crl_file = config.client_ca().empty() ? "" : config.crl()};
  }
  if (role != TlsRole::kServer && !config.ca().empty()) {
    settings.client = TlsOptions{.ca_file = config.ca() == kSystemAuthorities ? "" : config.ca(),
                                 .certificate_file = config.certificate(),
                                 .key_file = config.key(),
                                 .server_name = config.server_name(),
                                 .crl_file = config.crl()};
  }
  return settings;
}

absl::Status CheckTlsFiles(const TlsSettings& settings) {
  absl::Status status = settings.server.has_value() ? ValidateServerTls(*settings.server) : absl::OkStatus();
  if (!settings.client.has_value()) return status;
  const TlsOptions& client = *settings.client;
  if (!client.ca_file.empty()) status.Update(ReadCertificates({.field = "tls.ca", .path = client.ca_file}).status());
  if (!client.crl_file.empty()) status.Update(ReadCrls({.field = "tls.crl", .path = client.crl_file}).status());
  if (!client.certificate_file.empty()) {
    status.Update(ReadIdentity({.field = "tls.certificate", .path = client.certificate_file},
                               {.field = "tls.key", .path = client.key_file})
                      .status());
  }
  return status;
}

void AddTlsFlags(CLI::App& app, v1::TlsConfig& config, TlsRole role) {
  v1::FieldHelp shown_as;
  shown_as.set_group("TLS");
  if (role == TlsRole::kClient) {
    shown_as.add_without("client_ca");
    shown_as.add_without("crl");  // gRPC's clients have none
  }
  if (role == TlsRole::kServer) {
    shown_as.add_without("ca");
    shown_as.add_without("server_name");
  }
  ConfigFlags(config, shown_as).AddTo(app);
}

std::vector<std::string> BeyondThisHost(const std::vector<std::string>& addresses) {
  std::vector<std::string> beyond;
  for (const std::string& address : addresses) {
    if (IsBeyondThisHost(address)) beyond.push_back(address);
  }
  return beyond;
}

void WarnWithoutTls(const std::optional<ServerTls>& tls, const std::vector<std::string>& addresses) {
  const std::vector<std::string> beyond = BeyondThisHost(addresses);
  if (tls.has_value() || beyond.empty()) return;
  Log(LogLevel::kWarning, "other hosts may reach this server, and it has no TLS",
      {{"listen", absl::StrJoin(beyond, ",")}, {"flag", "--tls_certificate"}});
}

}  // namespace sluice
