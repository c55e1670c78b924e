#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <openssl/ossl_typ.h>

#include "absl/strings/string_view.h"
#include "lib/tls/openssl_types.h"
#include "tests/unit/tls/test_certificates.h"

namespace sluice::testing {

// One side of a TLS connection, implemented with OpenSSL alone, as a filter of bytes. Not thread-safe.
class TlsEnd {
 public:
  // Takes ciphertext and outputs the bytes to send. False: TLS has failed; the output is an alert.
  bool Receive(absl::string_view ciphertext, std::string& output);
  std::string Send(absl::string_view plaintext);
  std::string SendEnd();

  bool established() const;                                  // the handshake is complete: Send may be called
  const std::string& received() const { return received_; }  // plaintext
  bool ended() const { return ended_; }                      // by the peer's close_notify
  const std::string& error() const { return error_; }        // why it has failed, in OpenSSL's words
  SSL* ssl() const { return ssl_.get(); }

 protected:
  using Context = std::unique_ptr<SSL_CTX, OpensslDeleter<SSL_CTX_free>>;
  explicit TlsEnd(Context context);
  ~TlsEnd() = default;

  SSL_CTX* context() const { return context_.get(); }

 private:
  std::string TakeOutput();

  const Context context_;
  const SslPtr ssl_;
  std::string received_;
  bool ended_ = false;
  std::string error_;
};

class TlsServerEnd final : public TlsEnd {
 public:
  struct Options {
    TestCertificates::Files files;
    std::string client_ca_file;  // empty: requests no client certificate
    std::vector<std::string> alpn = {"h2"};
    bool alpn_is_required = true;  // otherwise continues without a protocol
    int max_version = 0;           // TLS1_2_VERSION; 0: the newest
  };
  explicit TlsServerEnd(const Options& options);

  std::string server_name() const;  // the name that the client sent (SNI)

 private:
  const Options options_;
};

class TlsClientEnd final : public TlsEnd {
 public:
  struct Options {
    std::string ca_file;
    std::optional<TestCertificates::Files> files;  // absent: presents no certificate
    std::vector<std::string> alpn = {"h2"};
    int max_version = 0;  // TLS1_2_VERSION; 0: the newest
  };
  // Receive("") outputs its first bytes.
  explicit TlsClientEnd(const Options& options);
};

}  // namespace sluice::testing
