#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <openssl/ossl_typ.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/tls/openssl_types.h"

namespace sluice {

// One side of a TLS connection, as a filter of bytes. It has no socket, and no clock except for the
// certificate check. There is one for each TLS connection. Not thread-safe.
//
// After each call the owner sends the bytes of TakeCiphertext to the peer; a client has its first bytes from
// construction.
class TlsFilter {
 public:
  // Makes a client. The peer's certificate must name `server_name`: a DNS name, an IP address without brackets, or a
  // URI, compared whole. Errors call the peer `peer`. Returns InvalidArgument if `server_name` cannot be a name.
  static absl::StatusOr<std::unique_ptr<TlsFilter>> Create(SSL_CTX& context, const std::string& server_name,
                                                           const std::string& peer);
  // Makes a server, with a context of TlsContext::CreateForListener. The peer must present a certificate. If
  // `client_names` is not empty, the certificate must have one of these names.
  static absl::StatusOr<std::unique_ptr<TlsFilter>> Accept(SSL_CTX& context, std::vector<std::string> client_names,
                                                           const std::string& peer);
  TlsFilter(const TlsFilter&) = delete;
  TlsFilter& operator=(const TlsFilter&) = delete;

  // Takes bytes of the peer, cut anywhere, and appends their plaintext. Returns Unavailable if the connection has
  // failed permanently; plaintext that was appended is still valid.
  absl::Status Receive(absl::string_view ciphertext, std::string& plaintext);
  // Takes the end of the byte stream. Returns OK after the peer's close_notify, and otherwise Unavailable, since an
  // attacker may have cut the stream. `broken` is the error that broke the stream, such as "Connection reset by peer",
  // if any.
  absl::Status ReceiveEnd(absl::string_view broken = "") const;

  // Encrypts `plaintext`. Call it only while established.
  absl::Status Send(absl::string_view plaintext);
  // Announces to the peer that nothing follows (close_notify).
  void SendEnd();
  std::string TakeCiphertext();

  // True once the handshake is complete on this side. A client's connection then carries HTTP/2. A server then has the
  // client's certificate. With TLS 1.3 a server may still refuse the client's certificate later; Receive reports that.
  bool established() const { return established_; }
  // True after the peer's close_notify.
  bool ended() const { return ended_; }
  // Checks the peer's certificates against the revocation lists of a context that was loaded after this connection was
  // made. Returns Unavailable with the reason if one of them is revoked.
  absl::Status CheckPeer(SSL_CTX& context) const;
  // Whether the peer has presented a certificate that has one of these names, as IsCertificateName.
  bool PeerHasOneOf(absl::Span<const std::string> names) const;
  // The first URI in the subjectAltName of the peer's certificate, or if there is none, the first DNS name, each of
  // its kind. Empty if the certificate has neither, or if the name is not printable ASCII without spaces.
  std::string PeerName() const;

 private:
  TlsFilter(SslPtr ssl, const std::string& peer);
  static absl::StatusOr<std::unique_ptr<TlsFilter>> Make(SSL_CTX& context, const std::string& peer);

  static int OnVerify(int ok, X509_STORE_CTX* check);
  static int OnCertificateRequest(SSL* ssl, void* filter);
  absl::Status Advance(std::string& plaintext);
  absl::Status Handshake();
  absl::Status Failure();

  const SslPtr ssl_;
  const std::string peer_;
  std::string server_name_;                // client only
  std::vector<std::string> client_names_;  // server only
  bool heard_ = false;                     // a byte of the peer has arrived
  bool asked_ = false;                     // the peer has requested a certificate
  bool heard_plaintext_ = false;           // plaintext has arrived, so the peer has accepted this side's certificate
  bool established_ = false;
  bool ended_ = false;
  std::string certificate_error_;  // empty if the check found no error
  absl::Status error_;             // the error that ended the connection
};

}  // namespace sluice
