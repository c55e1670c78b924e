#include "lib/tls/tls_filter.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/tls/certificate_check.h"
#include "lib/tls/certificate_name.h"
#include "lib/tls/openssl_error.h"
#include "lib/tls/tls_errors.h"

namespace sluice {
namespace {

constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
// A BIO keeps the largest buffer that it ever needed, and clears all of it each time. Replace a BIO whose buffer
// exceeded this size.
constexpr size_t kKeptOutputBytes = 2048;

absl::Status Name(SSL* ssl, const std::string& server_name) {
  // A DNS name may end in a dot; certificates and SNI (RFC 6066) have none.
  std::string name = server_name;
  if (absl::EndsWith(name, ".")) name.pop_back();
  X509_VERIFY_PARAM* const check = SSL_get0_param(ssl);
  // Otherwise OpenSSL compares the common name of a certificate without a DNS name.
  X509_VERIFY_PARAM_set_hostflags(check, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  // Without a name OpenSSL would accept any certificate.
  const bool fits = !name.empty() && (X509_VERIFY_PARAM_set1_ip_asc(check, name.c_str()) == 1 ||
                                      (X509_VERIFY_PARAM_set1_host(check, name.data(), name.size()) == 1 &&
                                       SSL_set_tlsext_host_name(ssl, name.c_str()) == 1));
  ERR_clear_error();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("server_name \"", server_name,
                                                 "\" is neither a DNS name nor an IP address; a certificate for it "
                                                 "cannot be checked"));
}

using GeneralNames = std::unique_ptr<GENERAL_NAMES, OpensslDeleter<GENERAL_NAMES_free>>;

GeneralNames AlternativeNames(const X509* certificate) {
  return GeneralNames(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
}

// Returns the text of a DNS name or URI.
absl::string_view TextOf(const GENERAL_NAME& name) {
  const ASN1_STRING* const text = name.type == GEN_DNS ? name.d.dNSName : name.d.uniformResourceIdentifier;
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)), static_cast<size_t>(ASN1_STRING_length(text))};
}

// Calls `matches` for the DNS names and URIs of a certificate, until it returns true.
bool AnyName(const X509* certificate, absl::FunctionRef<bool(CertificateNameKind, absl::string_view)> matches) {
  const GeneralNames own = AlternativeNames(certificate);
  for (int i = 0; own != nullptr && i < sk_GENERAL_NAME_num(own.get()); ++i) {
    const GENERAL_NAME& name = *sk_GENERAL_NAME_value(own.get(), i);
    if (name.type != GEN_DNS && name.type != GEN_URI) continue;
    const auto kind = name.type == GEN_DNS ? CertificateNameKind::kDns : CertificateNameKind::kUri;
    if (matches(kind, TextOf(name))) return true;
  }
  return false;
}

bool HasOneOf(const X509* certificate, absl::Span<const std::string> names) {
  return AnyName(certificate, [names](CertificateNameKind kind, absl::string_view own) {
    return std::any_of(names.begin(), names.end(),
                       [kind, own](const auto& wanted) { return IsCertificateName(kind, own, wanted); });
  });
}

}  // namespace

TlsFilter::TlsFilter(SslPtr ssl, const std::string& peer) : ssl_(std::move(ssl)), peer_(peer) {
  SSL_set_app_data(ssl_.get(), this);
  SSL_set0_wbio(ssl_.get(), BIO_new(BIO_s_mem()));
}

absl::StatusOr<std::unique_ptr<TlsFilter>> TlsFilter::Make(SSL_CTX& context, const std::string& peer) {
  ERR_clear_error();
  SslPtr ssl(SSL_new(&context));
  if (ssl == nullptr) return absl::ResourceExhaustedError(absl::StrCat("TLS with ", peer, ": ", OpensslReason()));
  return std::unique_ptr<TlsFilter>(new TlsFilter(std::move(ssl), peer));
}

absl::StatusOr<std::unique_ptr<TlsFilter>> TlsFilter::Create(SSL_CTX& context, const std::string& server_name,
                                                             const std::string& peer) {
  absl::StatusOr<std::unique_ptr<TlsFilter>> filter = Make(context, peer);
  if (!filter.ok()) return filter;
  SSL* const ssl = (*filter)->ssl_.get();
  if (!IsUriName(server_name)) {
    if (absl::Status status = Name(ssl, server_name); !status.ok()) return status;
  }
  (*filter)->server_name_ = server_name;
  SSL_set_verify(ssl, SSL_VERIFY_PEER, &TlsFilter::OnVerify);
  SSL_set_cert_cb(ssl, &TlsFilter::OnCertificateRequest, filter->get());
  SSL_set_connect_state(ssl);
  std::string none;
  if (absl::Status status = (*filter)->Receive("", none); !status.ok()) return status;
  return filter;
}

absl::StatusOr<std::unique_ptr<TlsFilter>> TlsFilter::Accept(SSL_CTX& context, std::vector<std::string> client_names,
                                                             const std::string& peer) {
  absl::StatusOr<std::unique_ptr<TlsFilter>> filter = Make(context, peer);
  if (!filter.ok()) return filter;
  (*filter)->client_names_ = std::move(client_names);
  SSL* const ssl = (*filter)->ssl_.get();
  SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, &TlsFilter::OnVerify);
  SSL_set_accept_state(ssl);
  return filter;
}

int TlsFilter::OnVerify(int ok, X509_STORE_CTX* check) {
  const auto* const ssl =
      static_cast<const SSL*>(X509_STORE_CTX_get_ex_data(check, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto& filter = *static_cast<TlsFilter*>(SSL_get_app_data(ssl));
  if (ok != 1) {
    filter.certificate_error_ = CertificateError(check, filter.peer_, filter.server_name_);
    return 0;
  }
  // OpenSSL checks the peer's own certificate last, at depth 0.
  const X509* const certificate = X509_STORE_CTX_get_current_cert(check);
  if (X509_STORE_CTX_get_error_depth(check) > 0) return 1;
  if (IsUriName(filter.server_name_) && !HasOneOf(certificate, {filter.server_name_})) {
    X509_STORE_CTX_set_error(check, X509_V_ERR_HOSTNAME_MISMATCH);
    filter.certificate_error_ = CertificateError(check, filter.peer_, filter.server_name_);
    return 0;
  }
  if (filter.client_names_.empty() || HasOneOf(certificate, filter.client_names_)) return 1;
  X509_STORE_CTX_set_error(check, X509_V_ERR_CERT_REJECTED);
  filter.certificate_error_ = ClientNameError(certificate, filter.peer_);
  return 0;
}

absl::Status TlsFilter::CheckPeer(SSL_CTX& context) const {
  return established_ ? CheckNotRevoked(context, SSL_get0_verified_chain(ssl_.get()), peer_) : absl::OkStatus();
}

bool TlsFilter::PeerHasOneOf(absl::Span<const std::string> names) const {
  const X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
  return established_ && certificate != nullptr && HasOneOf(certificate, names);
}

std::string TlsFilter::PeerName() const {
  const X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
  if (!established_ || certificate == nullptr) return "";
  std::string found;
  AnyName(certificate, [&found](CertificateNameKind kind, absl::string_view name) {
    const bool is_uri = kind == CertificateNameKind::kUri;
    if (!IsOfItsKind(kind, name) || (!is_uri && !found.empty())) return false;
    found = std::string(name);
    return is_uri;
  });
  const bool printable =
      std::all_of(found.begin(), found.end(), [](unsigned char c) { return absl::ascii_isgraph(c); });
  return printable ? found : "";
}

// The context already holds the certificate, if one is configured.
int TlsFilter::OnCertificateRequest(SSL* /*ssl*/, void* filter) {
  static_cast<TlsFilter*>(filter)->asked_ = true;
  return 1;
}

// OpenSSL reads the bytes in place. It keeps an incomplete record, and has then read all of them.
absl::Status TlsFilter::Receive(absl::string_view ciphertext, std::string& plaintext) {
  if (!error_.ok() || ended_) return error_;
  // Every record during a handshake begins with one of these types (RFC 8446, section 5.1); OpenSSL's own error would
  // report a wrong version.
  if (!heard_ && !ciphertext.empty()) {
    heard_ = true;
    if (ciphertext[0] != SSL3_RT_HANDSHAKE && ciphertext[0] != SSL3_RT_ALERT) {
      error_ = absl::UnavailableError(absl::StrCat(peer_, ": the other side does not speak TLS"));
      return error_;
    }
  }
  ERR_clear_error();
  BIO* const input = BIO_new_mem_buf(ciphertext.data(), static_cast<int>(ciphertext.size()));
  BIO_set_mem_eof_return(input, -1);  // more bytes may follow
  SSL_set0_rbio(ssl_.get(), input);
  error_ = Advance(plaintext);
  SSL_set0_rbio(ssl_.get(), nullptr);
  // SSL_MODE_RELEASE_BUFFERS does not free the 16 KB of the handshake.
  SSL_free_buffers(ssl_.get());
  return error_;
}

absl::Status TlsFilter::Advance(std::string& plaintext) {
  if (!established_) {
    if (absl::Status status = Handshake(); !status.ok() || !established_) return status;
  }
  std::array<char, kRecordBytes> record;
  while (true) {
    const int bytes = SSL_read(ssl_.get(), record.data(), static_cast<int>(record.size()));
    if (bytes > 0) {
      heard_plaintext_ = true;
      plaintext.append(record.data(), static_cast<size_t>(bytes));
      continue;
    }
    switch (SSL_get_error(ssl_.get(), bytes)) {
      case SSL_ERROR_WANT_READ:
        return absl::OkStatus();
      case SSL_ERROR_ZERO_RETURN:
        ended_ = true;
        return absl::OkStatus();
      default:
        return Failure();
    }
  }
}

absl::Status TlsFilter::Handshake() {
  const int done = SSL_do_handshake(ssl_.get());
  if (done != 1) return SSL_get_error(ssl_.get(), done) == SSL_ERROR_WANT_READ ? absl::OkStatus() : Failure();
  const unsigned char* protocol = nullptr;
  unsigned int bytes = 0;
  SSL_get0_alpn_selected(ssl_.get(), &protocol, &bytes);
  const bool is_http2 = absl::string_view(reinterpret_cast<const char*>(protocol), bytes) == "h2";
  // The first bytes of a client show its protocol, and it may ask for a tunnel before HTTP/2.
  if (!is_http2 && SSL_is_server(ssl_.get()) == 0) {
    return absl::UnavailableError(absl::StrCat(peer_, " does not offer HTTP/2 (ALPN \"h2\")"));
  }
  established_ = true;
  return absl::OkStatus();
}

absl::Status TlsFilter::Failure() {
  if (certificate_error_.empty()) return absl::UnavailableError(TlsError(ssl_.get(), peer_));
  ERR_clear_error();
  return absl::UnavailableError(certificate_error_);
}

absl::Status TlsFilter::ReceiveEnd(absl::string_view broken) const {
  if (!error_.ok() || ended_) return error_;
  std::string text = absl::StrCat(peer_, " ended the connection");
  if (asked_ && !heard_plaintext_) {
    // gRPC servers close the connection without an alert about the certificate.
    absl::StrAppend(&text, " after it asked for a certificate of this client; ", OwnCertificate(ssl_.get()));
  } else if (!established_) {
    absl::StrAppend(&text, " in the TLS handshake", heard_ ? "" : "; it may not speak TLS");
  } else {
    absl::StrAppend(&text, " without TLS close_notify");
  }
  if (!broken.empty()) absl::StrAppend(&text, ": ", broken);
  return absl::UnavailableError(text);
}

absl::Status TlsFilter::Send(absl::string_view plaintext) {
  if (!error_.ok() || plaintext.empty()) return error_;
  ERR_clear_error();
  size_t written = 0;
  // The BIO accepts all bytes.
  if (SSL_write_ex(ssl_.get(), plaintext.data(), plaintext.size(), &written) != 1) error_ = Failure();
  return error_;
}

void TlsFilter::SendEnd() {
  if (!established_ || !error_.ok()) return;
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

std::string TlsFilter::TakeCiphertext() {
  BIO* const output = SSL_get_wbio(ssl_.get());
  char* data = nullptr;
  const auto bytes = static_cast<size_t>(BIO_get_mem_data(output, &data));
  if (bytes == 0) return "";
  std::string ciphertext(data, bytes);
  if (bytes > kKeptOutputBytes) {
    SSL_set0_wbio(ssl_.get(), BIO_new(BIO_s_mem()));
  } else {
    BIO_reset(output);
  }
  return ciphertext;
}

}  // namespace sluice
