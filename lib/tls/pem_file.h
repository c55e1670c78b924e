#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice {

// A file of TLS in PEM (RFC 7468), and the field of a config that names it. A plain value.
struct PemFile {
  std::string field;  // "tls.certificate"; errors begin with it
  std::string path;
};

// Both functions read the files now; they may be others when TLS reads them. InvalidArgument that names the field and
// the file: it cannot be read, is larger than 1 MiB, holds nothing of the kind, or something of it does not parse.

// One certificate or more, those of authorities.
absl::Status CheckAuthorities(const PemFile& file);

// A certificate chain, the own certificate first, and its private key. Also InvalidArgument: the key is that of another
// certificate, or needs a password.
absl::Status CheckIdentity(const PemFile& certificate, const PemFile& key);

}  // namespace sluice
