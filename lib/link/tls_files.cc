#include "lib/link/tls_files.h"

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/link/openssl_types.h"
#include "lib/link/tls_errors.h"

namespace sluice {
namespace {

// One of the files, for errors.
struct File {
  const char* field;
  const std::string& name;

  absl::Status Refuse(absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat(field, " \"", name, "\" ", why));
  }
};

absl::StatusOr<BioPtr> Open(const File& file) {
  ERR_clear_error();
  BioPtr content(BIO_new_file(file.name.c_str(), "re"));
  if (content != nullptr) return content;
  const int error = errno;
  ERR_clear_error();
  if (error != ENOENT) return file.Refuse(absl::StrCat("cannot be read: ", std::strerror(error)));
  return absl::NotFoundError(absl::StrCat(file.field, " \"", file.name, "\" does not exist"));
}

absl::StatusOr<std::vector<X509Ptr>> ReadCertificates(const File& file) {
  absl::StatusOr<BioPtr> content = Open(file);
  if (!content.ok()) return content.status();
  std::vector<X509Ptr> certificates;
  while (X509Ptr certificate{PEM_read_bio_X509(content->get(), nullptr, nullptr, nullptr)}) {
    certificates.push_back(std::move(certificate));
  }
  // The end of the file is an error, too.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string reason = OpensslReason();
  if (!at_end) return file.Refuse(absl::StrCat("has a certificate that cannot be read: ", reason));
  if (certificates.empty()) return file.Refuse("has no certificate in PEM");
  return certificates;
}

// OpenSSL would ask the terminal for a pass phrase.
int NoPassPhrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

absl::StatusOr<KeyPtr> ReadKey(const File& file) {
  absl::StatusOr<BioPtr> content = Open(file);
  if (!content.ok()) return content.status();
  bool encrypted = false;
  KeyPtr key(PEM_read_bio_PrivateKey(content->get(), nullptr, NoPassPhrase, &encrypted));
  if (key != nullptr) return key;
  const std::string reason = OpensslReason();
  if (encrypted) return file.Refuse("is encrypted with a pass phrase, which is not supported");
  return file.Refuse(absl::StrCat("has no private key in PEM that can be read: ", reason));
}

}  // namespace

absl::Status LoadAuthorities(SSL_CTX& context, const std::string& ca_file) {
  ERR_clear_error();
  if (ca_file.empty()) {
    if (SSL_CTX_set_default_verify_paths(&context) == 1) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("ca_file is empty, and the system's authorities: ", OpensslReason()));
  }
  const File file{"ca_file", ca_file};
  absl::StatusOr<std::vector<X509Ptr>> certificates = ReadCertificates(file);
  if (!certificates.ok()) return certificates.status();
  for (const X509Ptr& certificate : *certificates) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(&context), certificate.get()) != 1) {
      return file.Refuse(absl::StrCat("has a certificate that is not taken: ", OpensslReason()));
    }
  }
  return absl::OkStatus();
}

absl::Status LoadCertificate(SSL_CTX& context, const std::string& certificate_file, const std::string& key_file) {
  const File file{"certificate_file", certificate_file};
  absl::StatusOr<std::vector<X509Ptr>> chain = ReadCertificates(file);
  if (!chain.ok()) return chain.status();
  const File file_of_key{"key_file", key_file};
  const absl::StatusOr<KeyPtr> key = ReadKey(file_of_key);
  if (!key.ok()) return key.status();
  bool taken = SSL_CTX_use_certificate(&context, chain->front().get()) == 1;
  for (size_t i = 1; taken && i < chain->size(); ++i) taken = SSL_CTX_add1_chain_cert(&context, (*chain)[i].get()) == 1;
  if (!taken) return file.Refuse(absl::StrCat("has a certificate that is not taken: ", OpensslReason()));
  if (X509_check_private_key(chain->front().get(), key->get()) != 1) {
    ERR_clear_error();
    return file_of_key.Refuse(
        absl::StrCat("has a private key that does not belong to the first certificate of certificate_file \"",
                     certificate_file, "\""));
  }
  if (SSL_CTX_use_PrivateKey(&context, key->get()) == 1) return absl::OkStatus();
  return file_of_key.Refuse(absl::StrCat("has a private key that is not taken: ", OpensslReason()));
}

}  // namespace sluice
