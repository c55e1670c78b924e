#include "tests/unit/tls/test_certificates.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/tls/openssl_types.h"

namespace sluice::testing {
namespace {

void AddExtension(X509* certificate, X509* signer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, signer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  ASSERT_NE(extension, nullptr) << value;
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

template <class Write>
std::string Pem(const Write& write) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  write(bio.get());
  char* data = nullptr;
  const auto bytes = static_cast<size_t>(BIO_get_mem_data(bio.get(), &data));
  return {data, bytes};
}

std::string Pem(X509* certificate) {
  return Pem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate); });
}

}  // namespace

TestCertificates::TestCertificates(Key key, bool intermediate) : key_(key), intermediate_(intermediate) {
  std::string folder = (std::filesystem::temp_directory_path() / "sluice-certificates-XXXXXX").string();
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  folder_ = folder;
  root_.key = MakeKey();
  root_.certificate = Sign("Test Root", root_.key, Signer(), nullptr);
  signer_ = root_;
  if (intermediate) {
    signer_.key = MakeKey();
    signer_.certificate = Sign("Test Intermediate", signer_.key, root_, nullptr);
  }
  ReplaceFile(ca_file(), Pem(root_.certificate));
}

TestCertificates::~TestCertificates() {
  if (intermediate_) {
    X509_free(signer_.certificate);
    EVP_PKEY_free(signer_.key);
  }
  X509_free(root_.certificate);
  EVP_PKEY_free(root_.key);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

EVP_PKEY* TestCertificates::MakeKey() const {
  return key_ == Key::kEcdsa ? EVP_EC_gen("P-256") : EVP_RSA_gen(2048);
}

X509* TestCertificates::Sign(const std::string& common_name, EVP_PKEY* key, const Signer& signer,
                             const Options* options) {
  X509* const certificate = X509_new();
  X509* const issuer = signer.certificate != nullptr ? signer.certificate : certificate;
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial_);
  X509_set_pubkey(certificate, key);
  X509_NAME* const name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(common_name.c_str()), -1,
                             -1, 0);
  X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
  const Options always{.valid_from = -absl::Hours(48), .valid_until = absl::Hours(48)};
  const Options& validity = options != nullptr ? *options : always;
  X509_gmtime_adj(X509_getm_notBefore(certificate), validity.valid_from / absl::Seconds(1));
  X509_gmtime_adj(X509_getm_notAfter(certificate), validity.valid_until / absl::Seconds(1));
  AddExtension(certificate, issuer, NID_subject_key_identifier, "hash");
  AddExtension(certificate, issuer, NID_authority_key_identifier, "keyid");
  if (options == nullptr) {
    AddExtension(certificate, issuer, NID_basic_constraints, "critical,CA:TRUE");
    AddExtension(certificate, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
  } else {
    std::string names;
    for (const std::string& dns : options->dns_names) absl::StrAppend(&names, names.empty() ? "" : ",", "DNS:", dns);
    for (const std::string& ip : options->ip_addresses) absl::StrAppend(&names, names.empty() ? "" : ",", "IP:", ip);
    for (const std::string& uri : options->uris) absl::StrAppend(&names, names.empty() ? "" : ",", "URI:", uri);
    if (!names.empty()) AddExtension(certificate, issuer, NID_subject_alt_name, names);
    AddExtension(certificate, issuer, NID_ext_key_usage, options->usage);
  }
  EXPECT_GT(X509_sign(certificate, signer.key != nullptr ? signer.key : key, EVP_sha256()), 0);
  return certificate;
}

TestCertificates::Files TestCertificates::Make(const std::string& name, const Options& options) {
  const KeyPtr key(MakeKey());
  const X509Ptr certificate(Sign(name, key.get(), signer_, &options));
  Files files{Path(name + ".pem"), Path(name + ".key")};
  ReplaceFile(files.certificate_file,
              absl::StrCat(Pem(certificate.get()), intermediate_ ? Pem(signer_.certificate) : ""));
  ReplaceFile(files.key_file,
              Pem([&](BIO* bio) { PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr); }));
  return files;
}

void ReplaceFile(const std::string& path, const std::string& content) {
  const std::string fresh = path + ".new";
  {
    std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
    file << content;
    ASSERT_TRUE(file.good()) << fresh;
  }
  std::filesystem::rename(fresh, path);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

}  // namespace sluice::testing
