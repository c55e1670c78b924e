#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice {

// TLS to the workers of a FanOut or BlockReader: TLS 1.2 or newer, ALPN "h2". All files are PEM and are read again when
// they change; connections that stand keep what they were made with.
struct TlsOptions {
  // Certificates of the authorities that sign the workers' certificates. Empty: those of the system.
  std::string ca_file;
  // Own certificate chain and private key, for workers that ask for one (mTLS). Both or neither.
  std::string certificate_file;
  std::string key_file;
  // Name that a worker's certificate has to bear, and the :authority of requests to it. Empty: the host of the worker's
  // address, and that address.
  std::string server_name;

  friend bool operator==(const TlsOptions&, const TlsOptions&) = default;
};

// InvalidArgument or NotFound that names the field and the file: a file cannot be read, does not parse, or does not fit
// another one.
absl::Status ValidateTls(const TlsOptions& options);

}  // namespace sluice
