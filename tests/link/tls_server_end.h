#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <openssl/ossl_typ.h>

#include "absl/strings/string_view.h"
#include "lib/tls/openssl_types.h"
#include "tests/link/test_certificates.h"

namespace sluice::testing {

// The server's side of one TLS connection, by OpenSSL alone, as bytes. Not thread-safe.
class TlsServerEnd {
 public:
  struct Options {
    TestCertificates::Files files;
    std::string client_ca_file;  // empty: asks no client for a certificate
    std::vector<std::string> alpn = {"h2"};
    bool alpn_is_required = true;  // otherwise goes on without one
    int max_version = 0;           // TLS1_2_VERSION; 0: the newest
  };
  explicit TlsServerEnd(const Options& options);

  // Takes ciphertext and gives what is to be sent. False: TLS has failed; the output is an alert.
  bool Receive(absl::string_view ciphertext, std::string& output);
  std::string Send(absl::string_view plaintext);
  std::string SendEnd();

  bool established() const;                                  // the handshake is complete: Send may be called
  const std::string& received() const { return received_; }  // plaintext
  bool ended() const { return ended_; }                      // by the client's close_notify
  std::string server_name() const;                           // that the client sent (SNI)

 private:
  std::string TakeOutput();

  const Options options_;
  const std::unique_ptr<SSL_CTX, OpensslDeleter<SSL_CTX_free>> context_;
  const SslPtr ssl_;
  std::string received_;
  bool ended_ = false;
};

}  // namespace sluice::testing
