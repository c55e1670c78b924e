#pragma once

#include <string>

#include <openssl/ossl_typ.h>

#include "absl/status/status.h"

namespace sluice {

// The PEM files of TlsOptions. NotFound where there is no file, InvalidArgument where it cannot be read, does not parse
// or does not fit; both name the field and the file, and nothing of a key's content.

// The authorities to trust; those of the system, if `ca_file` is empty.
absl::Status LoadAuthorities(SSL_CTX& context, const std::string& ca_file);

// The own certificate, the authorities between it and the root, and its private key.
absl::Status LoadCertificate(SSL_CTX& context, const std::string& certificate_file, const std::string& key_file);

}  // namespace sluice
