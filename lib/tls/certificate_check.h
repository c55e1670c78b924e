#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

typedef struct ssl_ctx_st SSL_CTX;

namespace sluice {

// Checks the certificate of a client against the authorities and the revocation lists of a context, as a handshake of
// TlsFilter does. For servers whose TLS is another one, which lacks revocation and reports no reason. Both texts are
// PEM: the client's certificate, and the ones that it has sent with it. Returns Unauthenticated with the names of the
// certificate and the reason.
absl::Status CheckClientCertificate(SSL_CTX& context, absl::string_view certificate, absl::string_view others);

}  // namespace sluice
