#include "lib/tls/pem_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/tls/openssl_error.h"

namespace sluice {
namespace {

constexpr std::streamsize kMaxBytes = 1 << 20;

std::string Say(const PemFile& file, absl::string_view why) {
  return absl::StrCat(file.field, ": \"", file.path, "\" ", why);
}

absl::Status Refuse(const PemFile& file, absl::string_view why) {
  return absl::InvalidArgumentError(Say(file, why));
}

absl::StatusOr<std::string> Read(const PemFile& file) {
  errno = 0;
  std::ifstream stream(file.path, std::ios::binary);
  // Read one byte more than the bound to detect a file that is too large.
  std::string text(kMaxBytes + 1, '\0');
  stream.read(text.data(), kMaxBytes + 1);
  if (!stream.is_open() || stream.bad()) {
    const int error = errno;
    const std::string why = absl::StrCat("cannot be read: ", std::strerror(error));
    return error == ENOENT ? absl::NotFoundError(Say(file, why)) : Refuse(file, why);
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  if (stream.gcount() > kMaxBytes) return Refuse(file, absl::StrCat("has more than ", kMaxBytes, " bytes"));
  return text;
}

BioPtr Over(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

bool AtEnd() {
  const auto error = ERR_peek_last_error();
  return ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
}

// Records that a pass phrase is required: OpenSSL would prompt on the terminal. `asked`: a bool, or null.
int NoPassPhrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* asked) {
  if (asked != nullptr) *static_cast<bool*>(asked) = true;
  return -1;
}

absl::StatusOr<KeyPtr> ReadKey(const PemFile& file) {
  const absl::StatusOr<std::string> text = Read(file);
  if (!text.ok()) return text.status();
  ERR_clear_error();
  bool encrypted = false;
  KeyPtr key(PEM_read_bio_PrivateKey(Over(*text).get(), nullptr, NoPassPhrase, &encrypted));
  if (key != nullptr) return key;
  const std::string reason = OpensslReason();
  if (encrypted) return Refuse(file, "is encrypted with a pass phrase, which is not supported");
  return Refuse(file, absl::StrCat("has no private key in PEM that can be read: ", reason));
}

}  // namespace

absl::StatusOr<std::vector<X509Ptr>> ReadCertificates(const PemFile& file) {
  const absl::StatusOr<std::string> text = Read(file);
  if (!text.ok()) return text.status();
  const BioPtr bio = Over(*text);
  std::vector<X509Ptr> certificates;
  ERR_clear_error();
  while (X509Ptr next{PEM_read_bio_X509(bio.get(), nullptr, NoPassPhrase, nullptr)}) {
    certificates.push_back(std::move(next));
  }
  // The end of the file is an error, too.
  const bool at_end = AtEnd();
  const std::string reason = OpensslReason();
  if (!at_end) {
    return Refuse(
        file, absl::StrCat("has a certificate that does not parse, number ", certificates.size() + 1, ": ", reason));
  }
  if (certificates.empty()) return Refuse(file, "has no certificate in PEM");
  // Decodes their extensions now. OpenSSL would do that in the first handshake, where threads may share them, under a
  // lock that ThreadSanitizer does not see whole. The handshake reports invalid extensions.
  for (const X509Ptr& next : certificates) X509_check_purpose(next.get(), -1, 0);
  ERR_clear_error();
  return certificates;
}

absl::StatusOr<std::vector<CrlPtr>> ReadCrls(const PemFile& file) {
  const absl::StatusOr<std::string> text = Read(file);
  if (!text.ok()) return text.status();
  const BioPtr bio = Over(*text);
  std::vector<CrlPtr> crls;
  ERR_clear_error();
  while (CrlPtr next{PEM_read_bio_X509_CRL(bio.get(), nullptr, NoPassPhrase, nullptr)}) crls.push_back(std::move(next));
  // The end of the file is an error, too.
  const bool at_end = AtEnd();
  const std::string reason = OpensslReason();
  if (!at_end)
    return Refuse(file, absl::StrCat("has a CRL that does not parse, number ", crls.size() + 1, ": ", reason));
  if (crls.empty()) return Refuse(file, "has no CRL in PEM");
  return crls;
}

absl::StatusOr<TlsIdentity> ReadIdentity(const PemFile& certificate, const PemFile& key) {
  absl::StatusOr<std::vector<X509Ptr>> chain = ReadCertificates(certificate);
  if (!chain.ok()) return chain.status();
  absl::StatusOr<KeyPtr> private_key = ReadKey(key);
  if (!private_key.ok()) return private_key.status();
  if (X509_check_private_key(chain->front().get(), private_key->get()) != 1) {
    ERR_clear_error();
    return Refuse(key, absl::StrCat("is not the key of the first certificate in \"", certificate.path, "\""));
  }
  return TlsIdentity{.chain = *std::move(chain), .key = *std::move(private_key)};
}

}  // namespace sluice
