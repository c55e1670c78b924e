#pragma once

#include <string>

#include <openssl/ossl_typ.h>
#include <openssl/x509_vfy.h>

#include "absl/strings/string_view.h"

namespace sluice {

// Why the check of a certificate failed, for who has to mend it. `peer` is whose certificate it is, `server_name` what
// it has to bear.
std::string CertificateError(X509_STORE_CTX* check, absl::string_view peer, absl::string_view server_name);

// What this side shows of itself to a server that asks for a certificate: none, or whose it is, who has signed it, and
// until when it is valid.
std::string OwnCertificate(const SSL* ssl);

// What OpenSSL's last call on this thread failed of. Empties its queue of errors. `peer` is the other end.
std::string TlsError(absl::string_view peer);

}  // namespace sluice
