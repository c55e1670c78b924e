#pragma once

#include <memory>
#include <string>

#include <openssl/ossl_typ.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/tls/openssl_types.h"

namespace sluice {

// The client's side of one TLS connection that carries HTTP/2, as a filter of bytes: it has no socket and no clock but
// that of the certificate check. One for each TLS connection. Not thread-safe.
//
// After each call, what TakeCiphertext gives goes to the other side. The first of it is there from the beginning.
class TlsFilter {
 public:
  // The certificate of the other side has to bear `server_name`, a DNS name or an IP address without brackets. Errors
  // call the other side `peer`. InvalidArgument for a name that cannot be one.
  static absl::StatusOr<std::unique_ptr<TlsFilter>> Create(SSL_CTX& context, const std::string& server_name,
                                                           const std::string& peer);
  TlsFilter(const TlsFilter&) = delete;
  TlsFilter& operator=(const TlsFilter&) = delete;

  // Takes bytes of the other side, cut anywhere, and appends their plaintext. Unavailable: the connection has failed,
  // for good; what was appended is still true.
  absl::Status Receive(absl::string_view ciphertext, std::string& plaintext);
  // Takes the end of the byte stream. OK after the other side's close_notify; otherwise somebody may have cut it
  // (Unavailable). `broken`: how it broke, where it did not end in good order: "Connection reset by peer".
  absl::Status ReceiveEnd(absl::string_view broken = "") const;

  // While established.
  absl::Status Send(absl::string_view plaintext);
  // Says that nothing follows (close_notify).
  void SendEnd();
  std::string TakeCiphertext();

  // The handshake is complete on this side, and HTTP/2 is what both speak. With TLS 1.3 the other side may still refuse
  // this side's certificate: Receive says so.
  bool established() const { return established_; }
  // The other side sends nothing any more, in good order.
  bool ended() const { return ended_; }

 private:
  TlsFilter(SslPtr ssl, std::string server_name, std::string peer);

  static int OnVerify(int ok, X509_STORE_CTX* check);
  static int OnCertificateRequest(SSL* ssl, void* filter);
  absl::Status Advance(std::string& plaintext);
  absl::Status Handshake();
  absl::Status Failure();

  const SslPtr ssl_;
  const std::string server_name_;
  const std::string peer_;
  bool heard_ = false;            // a byte of the other side
  bool asked_ = false;            // for a certificate of this side
  bool heard_plaintext_ = false;  // so the other side has taken what it asked for
  bool established_ = false;
  bool ended_ = false;
  std::string certificate_error_;  // empty: none
  absl::Status error_;             // that ended it
};

}  // namespace sluice
