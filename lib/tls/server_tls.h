#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice {

// TLS of the connections that a server accepts: TLS 1.2 or newer. All files are PEM. A plain value.
struct ServerTls {
  std::string certificate_file;  // chain, the server's own certificate first
  std::string key_file;
  // Certificates of the authorities that sign clients' certificates. The handshake refuses a client without one. Empty:
  // clients need no certificate.
  std::string client_ca_file;
  // Revocation lists of these authorities. A client's certificate, and each one between it and the authority, must have
  // a list of its issuer that is in force and does not name it. Empty: nothing is revoked.
  std::string crl_file;

  friend bool operator==(const ServerTls&, const ServerTls&) = default;
};

// Returns the errors of ReadIdentity and ReadCertificates (lib/tls/pem_file.h), with the fields of TlsConfig
// (proto/sluice/v1/config.proto).
absl::Status ValidateServerTls(const ServerTls& tls);

}  // namespace sluice
