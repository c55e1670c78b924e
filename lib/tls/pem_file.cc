#include "lib/tls/pem_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr std::streamsize kMaxBytes = 1 << 20;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, Free>;
using Certificate = std::unique_ptr<X509, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;

absl::Status Refuse(const PemFile& file, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(file.field, ": \"", file.path, "\" ", std::string(why)));
}

absl::StatusOr<std::string> Read(const PemFile& file) {
  errno = 0;
  std::ifstream stream(file.path, std::ios::binary);
  // One byte more than the bound tells a file that is too large.
  std::string text(kMaxBytes + 1, '\0');
  stream.read(text.data(), kMaxBytes + 1);
  if (!stream.is_open() || stream.bad()) {
    return Refuse(file, absl::StrCat("cannot be read: ", std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  if (stream.gcount() > kMaxBytes) return Refuse(file, absl::StrCat("has more than ", kMaxBytes, " bytes"));
  return text;
}

Bio Over(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Takes what OpenSSL has put into the thread's queue of errors, so that nobody else finds it there.
std::string LastError() {
  const uint64_t code = ERR_peek_last_error();
  const char* const reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "unknown error" : reason;
}

bool AtEnd() {
  const uint64_t code = ERR_peek_last_error();
  return ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
}

// OpenSSL would ask for a password on the terminal.
int NoPassword(char*, int, int, void*) {
  return -1;
}

absl::StatusOr<std::vector<Certificate>> ReadCertificates(const PemFile& file) {
  const absl::StatusOr<std::string> text = Read(file);
  if (!text.ok()) return text.status();
  const Bio bio = Over(*text);
  std::vector<Certificate> certificates;
  ERR_clear_error();
  while (Certificate next{PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr)}) {
    certificates.push_back(std::move(next));
  }
  const bool at_end = AtEnd();
  const std::string error = LastError();
  if (!at_end) {
    return Refuse(file,
                  absl::StrCat("has a certificate that does not parse, number ", certificates.size() + 1, ": ", error));
  }
  if (certificates.empty()) return Refuse(file, "has no certificate in PEM");
  return certificates;
}

absl::StatusOr<Key> ReadKey(const PemFile& file) {
  const absl::StatusOr<std::string> text = Read(file);
  if (!text.ok()) return text.status();
  ERR_clear_error();
  Key key(PEM_read_bio_PrivateKey(Over(*text).get(), nullptr, NoPassword, nullptr));
  if (!key) return Refuse(file, absl::StrCat("has no private key in PEM without a password: ", LastError()));
  return key;
}

}  // namespace

absl::Status CheckAuthorities(const PemFile& file) {
  return ReadCertificates(file).status();
}

absl::Status CheckIdentity(const PemFile& certificate, const PemFile& key) {
  const auto chain = ReadCertificates(certificate);
  if (!chain.ok()) return chain.status();
  const auto private_key = ReadKey(key);
  if (!private_key.ok()) return private_key.status();
  if (X509_check_private_key(chain->front().get(), private_key->get()) == 1) return absl::OkStatus();
  ERR_clear_error();
  return Refuse(key, absl::StrCat("is not the key of the first certificate in \"", certificate.path, "\""));
}

}  // namespace sluice
