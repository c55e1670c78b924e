#pragma once

#include <string>
#include <vector>

#include "sluice/tls_options.h"

#include "absl/time/time.h"

typedef struct evp_pkey_st EVP_PKEY;
typedef struct x509_st X509;

namespace sluice::testing {

// A certificate authority and the certificates that it signs, as PEM files in a temporary folder. Clients of one object
// do not trust the authority of another. Not thread-safe.
class TestCertificates {
 public:
  enum class Key { kEcdsa, kRsa2048 };
  struct Files {
    std::string certificate_file;  // with the intermediate certificates below the root
    std::string key_file;
  };
  struct Options {
    std::vector<std::string> dns_names = {"localhost"};
    std::vector<std::string> ip_addresses = {"127.0.0.1", "::1"};
    std::vector<std::string> uris = {};
    std::string usage = "serverAuth,clientAuth";  // extended key usage; selects the sides
    absl::Duration valid_from = -absl::Hours(1);  // from now
    absl::Duration valid_until = absl::Hours(1);
  };

  // `intermediate`: the root signs an authority that signs the rest, so that chains have two certificates.
  explicit TestCertificates(Key key = Key::kEcdsa, bool intermediate = false);
  ~TestCertificates();
  TestCertificates(const TestCertificates&) = delete;
  TestCertificates& operator=(const TestCertificates&) = delete;

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  // Writes or rewrites NAME.pem and NAME.key.
  Files Make(const std::string& name, const Options& options);
  Files Make(const std::string& name) { return Make(name, Options()); }

  std::string ca_file() const { return Path("ca.pem"); }
  // Options for a client that trusts the authority; with `own`, it has a certificate.
  TlsOptions ClientOptions() const { return {.ca_file = ca_file()}; }
  TlsOptions ClientOptions(const Files& own) const {
    return {.ca_file = ca_file(), .certificate_file = own.certificate_file, .key_file = own.key_file};
  }

 private:
  struct Signer {
    X509* certificate = nullptr;
    EVP_PKEY* key = nullptr;
  };

  EVP_PKEY* MakeKey() const;
  // If `signer` is null, the certificate signs itself. Without options it is an authority.
  X509* Sign(const std::string& common_name, EVP_PKEY* key, const Signer& signer, const Options* options);

  const Key key_;
  const bool intermediate_;
  std::string folder_;
  Signer root_;
  Signer signer_;  // root_, or the intermediate authority
  int serial_ = 0;
};

// Writes `content` to `path` in one step, as certificate rotation does.
void ReplaceFile(const std::string& path, const std::string& content);
std::string ReadFile(const std::string& path);

}  // namespace sluice::testing
