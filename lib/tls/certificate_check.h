#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/tls/openssl_types.h"

namespace sluice {

// Checks the certificate of a client against the authorities and the revocation lists of a context, as a handshake of
// TlsFilter does. For servers whose TLS is another one, which lacks revocation and reports no reason. Both texts are
// PEM: the client's certificate, and the ones that it has sent with it. Returns Unauthenticated with the names of the
// certificate and the reason.
absl::Status CheckClientCertificate(SSL_CTX& context, absl::string_view certificate, absl::string_view others);

// Checks a chain that a handshake has accepted against the revocation lists of a newer context. `peer` owns the first
// certificate; null: no chain. Returns Unavailable with the reason if a list names one of them. Reports nothing else: a
// list that has expired refuses handshakes, and names no certificate.
absl::Status CheckNotRevoked(SSL_CTX& context, STACK_OF(X509) * chain, absl::string_view peer);

}  // namespace sluice
