#include "lib/tls/server_tls.h"

#include "lib/tls/pem_file.h"

namespace sluice {

absl::Status ValidateServerTls(const ServerTls& tls) {
  absl::Status status = ReadIdentity({.field = "tls.certificate", .path = tls.certificate_file},
                                     {.field = "tls.key", .path = tls.key_file})
                            .status();
  if (!tls.client_ca_file.empty()) {
    status.Update(ReadCertificates({.field = "tls.client_ca", .path = tls.client_ca_file}).status());
  }
  if (!tls.crl_file.empty()) status.Update(ReadCrls({.field = "tls.crl", .path = tls.crl_file}).status());
  return status;
}

}  // namespace sluice
