#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/tls/openssl_types.h"

namespace sluice {

// A file of TLS in PEM (RFC 7468), and the field of a config or of an options struct that names it. A plain value.
struct PemFile {
  std::string field;  // "tls.certificate"; errors begin with it
  std::string path;
};

// What one side of a connection shows of itself.
struct TlsIdentity {
  std::vector<X509Ptr> chain;  // the own certificate first; at least one
  KeyPtr key;                  // of the first
};

// Both functions name the field and the file in their errors, and nothing of a key's content. NotFound: there is no
// file. InvalidArgument: it cannot be read, is larger than 1 MiB, holds nothing of the kind, or something of it does
// not parse.

// One certificate or more.
absl::StatusOr<std::vector<X509Ptr>> ReadCertificates(const PemFile& file);

// A certificate chain and its private key. Also InvalidArgument: the key is that of another certificate, or is
// encrypted with a pass phrase.
absl::StatusOr<TlsIdentity> ReadIdentity(const PemFile& certificate, const PemFile& key);

}  // namespace sluice
