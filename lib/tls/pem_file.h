#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/tls/openssl_types.h"

namespace sluice {

// A TLS file in PEM format (RFC 7468), and the field of a config or of an options struct that names the file. A plain
// value.
struct PemFile {
  std::string field;  // "tls.certificate"; errors begin with it
  std::string path;
};

// The certificate and key of one side of a connection.
struct TlsIdentity {
  std::vector<X509Ptr> chain;  // at least one; the side's own certificate comes first
  KeyPtr key;                  // of the first certificate
};

// The errors of these functions name the field and the file, and never contain key data. They return NotFound if the
// file does not exist, InvalidArgument if it cannot be read, is larger than 1 MiB, lacks such an item, or does not
// parse.

// Reads one certificate or more.
absl::StatusOr<std::vector<X509Ptr>> ReadCertificates(const PemFile& file);

// Reads one certificate revocation list or more.
absl::StatusOr<std::vector<CrlPtr>> ReadCrls(const PemFile& file);

// Reads a certificate chain and its private key. Also returns InvalidArgument if the key belongs to another
// certificate, or is encrypted with a pass phrase.
absl::StatusOr<TlsIdentity> ReadIdentity(const PemFile& certificate, const PemFile& key);

}  // namespace sluice
