#include "lib/tls/server_tls.h"

#include "lib/tls/pem_file.h"

namespace sluice {

absl::Status ValidateServerTls(const ServerTls& tls) {
  absl::Status status = CheckIdentity({.field = "tls.certificate", .path = tls.certificate_file},
                                      {.field = "tls.key", .path = tls.key_file});
  if (!tls.client_ca_file.empty()) {
    status.Update(CheckAuthorities({.field = "tls.client_ca", .path = tls.client_ca_file}));
  }
  return status;
}

}  // namespace sluice
