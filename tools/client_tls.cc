#include "tools/client_tls.h"

#include "absl/strings/str_cat.h"
#include "lib/cli/tls_flags.h"
#include "lib/tls/certificate_name.h"

namespace sluice {

void ClientTls::AddFlags(CLI::App& app) {
  AddTlsFlags(app, config_, TlsRole::kClient);
}

absl::StatusOr<ChannelSecurity> ClientTls::Configure() const {
  const absl::StatusOr<TlsSettings> settings = ParseTlsConfig(config_, TlsRole::kClient);
  if (!settings.ok()) return settings.status();
  if (IsUriName(config_.server_name())) {
    return absl::InvalidArgumentError(
        absl::StrCat("tls.server_name is \"", config_.server_name(),
                     "\", a URI; gRPC's client in this program compares DNS names and IP addresses only"));
  }
  if (absl::Status files = CheckTlsFiles(*settings); !files.ok()) return files;
  return ChannelSecurity::Create(settings->client);
}

}  // namespace sluice
