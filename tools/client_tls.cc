#include "tools/client_tls.h"

#include "lib/cli/tls_flags.h"

namespace sluice {

void ClientTls::AddFlags(CLI::App& app) {
  AddTlsFlags(app, config_, TlsRole::kClient);
}

absl::StatusOr<ChannelSecurity> ClientTls::Configure() const {
  const absl::StatusOr<TlsSettings> settings = ParseTlsConfig(config_, TlsRole::kClient);
  if (!settings.ok()) return settings.status();
  if (absl::Status files = CheckTlsFiles(*settings); !files.ok()) return files;
  return ChannelSecurity::Create(settings->client);
}

}  // namespace sluice
