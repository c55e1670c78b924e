#pragma once

#include <string>

#include <openssl/ossl_typ.h>
#include <openssl/x509_vfy.h>

#include "absl/strings/string_view.h"

namespace sluice {

// Returns why the check of a certificate failed, for the operator who must fix it. `peer` owns the certificate, which
// must name `server_name`.
std::string CertificateError(X509_STORE_CTX* check, absl::string_view peer, absl::string_view server_name);

// Returns the error for a client, `peer`, whose certificate does not contain an accepted name of the listener.
std::string ClientNameError(const X509* certificate, absl::string_view peer);

// Returns the first names of a certificate, for the log: the alternative names, or if it has none, "CN=" and the common
// name.
std::string CertificateNames(const X509* certificate);

// Describes the certificate that this side presents to a server that requests one: none, or its owner, the authority
// that signed it, and the end of its validity.
std::string OwnCertificate(const SSL* ssl);

// Returns why OpenSSL's last call for `ssl` on this thread failed, and empties its queue of errors. `peer` is the other
// end.
std::string TlsError(const SSL* ssl, absl::string_view peer);

}  // namespace sluice
