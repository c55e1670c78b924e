#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice {

// TLS to the workers of a FanOut or BlockReader: TLS 1.2 or newer, ALPN "h2". All files are PEM. They are read again
// when they change. Existing connections keep the files with which they were made.
struct TlsOptions {
  // Certificates of the authorities that sign the workers' certificates. Empty: the authorities of the system.
  std::string ca_file;
  // The client's certificate chain and private key, for workers that ask for a certificate (mTLS). Give both or
  // neither.
  std::string certificate_file;
  std::string key_file;
  // The name that a worker's certificate must have: a DNS name, which is also the :authority of requests to it, or a
  // URI, such as spiffe://example/worker. Empty: the certificate must have the host of the worker's address. The
  // :authority is then that address, as with a URI.
  std::string server_name;
  // Revocation lists of the authorities. A worker's certificate, and each one between it and the authority, must have a
  // list of its issuer that is in force and does not name it. Empty: nothing is revoked.
  std::string crl_file;

  friend bool operator==(const TlsOptions&, const TlsOptions&) = default;
};

// Returns InvalidArgument or NotFound that names the field and the file if a file cannot be read, does not parse, or
// does not match a different one.
absl::Status ValidateTls(const TlsOptions& options);

}  // namespace sluice
