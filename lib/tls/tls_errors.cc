#include "lib/tls/tls_errors.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/tls1.h>
#include <openssl/x509v3.h>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/tls/certificate_name.h"
#include "lib/tls/openssl_error.h"
#include "lib/tls/openssl_types.h"

namespace sluice {
namespace {

constexpr size_t kMaxNames = 5;  // names of a certificate listed in an error

// Text from the peer goes into logs, so make it printable and bounded.
std::string Printable(const unsigned char* data, int bytes) {
  return absl::CHexEscape(absl::string_view(reinterpret_cast<const char*>(data), std::min(std::max(bytes, 0), 100)));
}

std::string TextOf(const ASN1_STRING* text) {
  return Printable(ASN1_STRING_get0_data(text), ASN1_STRING_length(text));
}

std::string IpOf(const ASN1_OCTET_STRING* ip) {
  const unsigned char* bytes = ASN1_STRING_get0_data(ip);
  if (ASN1_STRING_length(ip) == 4) return absl::StrFormat("%d.%d.%d.%d", bytes[0], bytes[1], bytes[2], bytes[3]);
  std::vector<std::string> groups;
  for (int i = 0; i + 1 < ASN1_STRING_length(ip); i += 2) {
    groups.push_back(absl::StrFormat("%x", bytes[i] * 256 + bytes[i + 1]));
  }
  return absl::StrJoin(groups, ":");
}

std::string CommonName(const X509_NAME* name) {
  const int index = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
  return index < 0 ? "" : TextOf(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, index)));
}

std::string NameOf(const GENERAL_NAME& name) {
  if (name.type == GEN_IPADD) return IpOf(name.d.iPAddress);
  const bool is_dns = name.type == GEN_DNS;
  const std::string text = TextOf(is_dns ? name.d.dNSName : name.d.uniformResourceIdentifier);
  if (IsOfItsKind(is_dns ? CertificateNameKind::kDns : CertificateNameKind::kUri, text)) return text;
  return absl::StrCat(is_dns ? "DNS:" : "URI:", text);
}

}  // namespace

// A name that does not count has its kind before it: the text alone could be the name that is missed.
std::string CertificateNames(const X509* certificate) {
  std::vector<std::string> names;
  size_t left_out = 0;
  const std::unique_ptr<GENERAL_NAMES, OpensslDeleter<GENERAL_NAMES_free>> alternatives(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; alternatives != nullptr && i < sk_GENERAL_NAME_num(alternatives.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(alternatives.get(), i);
    if (name->type != GEN_DNS && name->type != GEN_IPADD && name->type != GEN_URI) continue;
    if (names.size() == kMaxNames) {
      ++left_out;
    } else {
      names.push_back(NameOf(*name));
    }
  }
  if (left_out > 0) names.push_back(absl::StrCat(left_out, " more"));
  if (names.empty()) names.push_back(absl::StrCat("CN=", CommonName(X509_get_subject_name(certificate))));
  return absl::StrJoin(names, ", ");
}

namespace {

std::string TimeOf(const ASN1_TIME* time) {
  tm utc{};
  if (ASN1_TIME_to_tm(time, &utc) != 1) return "an unknown time";
  return absl::StrFormat("%04d-%02d-%02d %02d:%02d:%02d UTC", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                         utc.tm_hour, utc.tm_min, utc.tm_sec);
}

// Returns whether an alert is about this side's certificate (RFC 8446, section 6.2).
bool IsAboutOurCertificate(int alert) {
  switch (alert) {
    case SSL3_AD_BAD_CERTIFICATE:
    case SSL3_AD_UNSUPPORTED_CERTIFICATE:
    case SSL3_AD_CERTIFICATE_REVOKED:
    case SSL3_AD_CERTIFICATE_EXPIRED:
    case SSL3_AD_CERTIFICATE_UNKNOWN:
    case TLS1_AD_UNKNOWN_CA:
    case TLS1_AD_ACCESS_DENIED:
      return true;
    default:
      return false;
  }
}

std::string NoHttp2(absl::string_view peer) {
  return absl::StrCat(peer, " does not offer HTTP/2 (ALPN \"h2\")");
}

std::string AlertError(absl::string_view peer, int alert, absl::string_view this_side) {
  if (alert == TLS1_AD_NO_APPLICATION_PROTOCOL) return NoHttp2(peer);
  if (alert == TLS13_AD_CERTIFICATE_REQUIRED) {
    return absl::StrCat(peer, " asks for a certificate of this client, which has none");
  }
  const char* const name = SSL_alert_desc_string_long(alert);
  const std::string text = std::strcmp(name, "unknown") == 0 ? absl::StrCat(alert) : std::string(name);
  const std::string what =
      IsAboutOurCertificate(alert) ? absl::StrCat("certificate of this ", this_side) : std::string("TLS connection");
  return absl::StrCat(peer, " refuses the ", what, ": TLS alert \"", text, "\"");
}

}  // namespace

std::string CertificateError(X509_STORE_CTX* check, absl::string_view peer, absl::string_view server_name) {
  const int error = X509_STORE_CTX_get_error(check);
  X509* const certificate = X509_STORE_CTX_get_current_cert(check);
  const std::string own = absl::StrCat("the certificate of ", peer);
  if (certificate == nullptr) return absl::StrCat(own, ": ", X509_verify_cert_error_string(error));
  const bool is_own = X509_STORE_CTX_get_error_depth(check) == 0;
  const std::string which = is_own ? own
                                   : absl::StrCat("the certificate \"", CommonName(X509_get_subject_name(certificate)),
                                                  "\" that ", peer, " relies on");
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return absl::StrCat(which, " expired at ", TimeOf(X509_get0_notAfter(certificate)));
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return absl::StrCat(which, " is not valid before ", TimeOf(X509_get0_notBefore(certificate)));
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return absl::StrCat(own, " is for ", CertificateNames(certificate), ", not ", server_name);
    case X509_V_ERR_CERT_REVOKED:
      return absl::StrCat(which, " is revoked");
    case X509_V_ERR_UNABLE_TO_GET_CRL:
      return absl::StrCat(which, " cannot be checked: there is no CRL of its authority, \"",
                          CommonName(X509_get_issuer_name(certificate)), "\"");
    case X509_V_ERR_CRL_HAS_EXPIRED: {
      const X509_CRL* const crl = X509_STORE_CTX_get0_current_crl(check);  // only while the check runs
      return absl::StrCat(which, " cannot be checked: the CRL of its authority, \"",
                          CommonName(X509_get_issuer_name(certificate)), "\", expired",
                          crl == nullptr ? "" : absl::StrCat(" at ", TimeOf(X509_CRL_get0_nextUpdate(crl))));
    }
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      return absl::StrCat(own, " is signed by itself, and not among the trusted ones");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      return absl::StrCat(own, " is signed by an unknown authority, \"", CommonName(X509_get_issuer_name(certificate)),
                          "\", which is not among the trusted ones");
    default:
      return absl::StrCat(which, ": ", X509_verify_cert_error_string(error));
  }
}

std::string ClientNameError(const X509* certificate, absl::string_view peer) {
  return absl::StrCat("the certificate of ", peer, " is for ", CertificateNames(certificate),
                      ", and has none of client_names as its DNS name or URI");
}

std::string OwnCertificate(const SSL* ssl) {
  X509* const own = SSL_get_certificate(ssl);
  if (own == nullptr) return "this client has none";
  const bool expired = X509_cmp_current_time(X509_get0_notAfter(own)) < 0;
  return absl::StrCat("this client showed \"", CommonName(X509_get_subject_name(own)), "\" of the authority \"",
                      CommonName(X509_get_issuer_name(own)), expired ? "\", which expired at " : "\", valid until ",
                      TimeOf(X509_get0_notAfter(own)));
}

std::string TlsError(const SSL* ssl, absl::string_view peer) {
  // OpenSSL numbers alerts from SSL_AD_REASON_OFFSET among the reasons.
  const int reason = ERR_GET_REASON(ERR_peek_last_error());
  if (ERR_GET_LIB(ERR_peek_last_error()) == ERR_LIB_SSL && reason > SSL_AD_REASON_OFFSET &&
      reason < SSL_AD_REASON_OFFSET + 256) {
    ERR_clear_error();
    return AlertError(peer, reason - SSL_AD_REASON_OFFSET, SSL_is_server(ssl) == 1 ? "listener" : "client");
  }
  const bool no_certificate = reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE;
  if (no_certificate || reason == SSL_R_NO_APPLICATION_PROTOCOL) {
    ERR_clear_error();
    return absl::StrCat(peer, no_certificate ? " showed no certificate"
                                             : " offers neither HTTP/2 nor HTTP/1.1 (ALPN \"h2\", \"http/1.1\")");
  }
  return absl::StrCat("TLS with ", peer, ": ", OpensslReason());
}

}  // namespace sluice
