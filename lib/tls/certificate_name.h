#pragma once

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace sluice {

// The kinds of a subjectAltName that name a peer. A common name (CN) names none.
enum class CertificateNameKind { kDns, kUri };

// Returns whether a name is a URI, such as a SPIFFE ID, and not a DNS name. It is neither a host for SNI nor an
// :authority.
inline bool IsUriName(absl::string_view name) {
  return absl::StrContains(name, "://");
}

// Returns whether this name of a certificate is of its kind. An authority may check names of one kind, and sign those
// of the other as they are requested: a DNS name that spells a URI is no name, nor is a URI without "://".
inline bool IsOfItsKind(CertificateNameKind kind, absl::string_view name) {
  return IsUriName(name) == (kind == CertificateNameKind::kUri);
}

// Returns whether this name of a certificate is `wanted`. Compares whole names, a zero byte included: URIs as they are,
// DNS names without regard to case.
inline bool IsCertificateName(CertificateNameKind kind, absl::string_view name, absl::string_view wanted) {
  if (!IsOfItsKind(kind, wanted)) return false;
  return kind == CertificateNameKind::kUri ? name == wanted : absl::EqualsIgnoreCase(name, wanted);
}

}  // namespace sluice
