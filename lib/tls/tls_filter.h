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

// One side of a TLS connection that carries HTTP/2, as a filter of bytes. It has no socket, and no clock but that of
// the certificate check. There is one for each TLS connection. Not thread-safe.
//
// After each call the owner sends the bytes of TakeCiphertext to the other side; the first of a client are there from
// the beginning.
class TlsFilter {
 public:
  // A client. The certificate of the other side must name `server_name`, a DNS name or an IP address without brackets.
  // Errors call the other side `peer`. Returns InvalidArgument if `server_name` cannot be a name.
  static absl::StatusOr<std::unique_ptr<TlsFilter>> Create(SSL_CTX& context, const std::string& server_name,
                                                           const std::string& peer);
  // A server, with a context of TlsContext::CreateForListener. The other side must show a certificate, and with
  // `client_names` one that has one of them.
  static absl::StatusOr<std::unique_ptr<TlsFilter>> Accept(SSL_CTX& context, std::vector<std::string> client_names,
                                                           const std::string& peer);
  TlsFilter(const TlsFilter&) = delete;
  TlsFilter& operator=(const TlsFilter&) = delete;

  // Takes bytes of the other side, cut anywhere, and appends their plaintext. Returns Unavailable if the connection has
  // failed for good; plaintext that was appended is still valid.
  absl::Status Receive(absl::string_view ciphertext, std::string& plaintext);
  // Takes the end of the byte stream. Returns OK after the other side's close_notify, and otherwise Unavailable, since
  // somebody may have cut the stream. `broken` says how it broke, such as "Connection reset by peer", if it did.
  absl::Status ReceiveEnd(absl::string_view broken = "") const;

  // Encrypts `plaintext`. Call it only while established.
  absl::Status Send(absl::string_view plaintext);
  // Tells the other side that nothing follows (close_notify).
  void SendEnd();
  std::string TakeCiphertext();

  // True once the handshake is complete on this side and both sides speak HTTP/2. A server then knows the client's
  // certificate. With TLS 1.3 the other side of a client may still refuse its certificate; Receive reports that.
  bool established() const { return established_; }
  // True after the other side's close_notify.
  bool ended() const { return ended_; }
  // Whether the other side has shown a certificate that has one of these names: a DNS name or URI of its
  // subjectAltName, compared whole, DNS names without regard to case.
  bool PeerHasOneOf(absl::Span<const std::string> names) const;

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
  std::string server_name_;                // of a client
  std::vector<std::string> client_names_;  // of a server
  bool heard_ = false;                     // a byte of the other side has come
  bool asked_ = false;                     // the other side has asked for a certificate
  bool heard_plaintext_ = false;           // plaintext has come, so the other side has accepted this side's certificate
  bool established_ = false;
  bool ended_ = false;
  std::string certificate_error_;  // empty if there is none
  absl::Status error_;             // the error that ended the connection
};

}  // namespace sluice
