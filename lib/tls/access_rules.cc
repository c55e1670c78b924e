#include "lib/tls/access_rules.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/tls/certificate_name.h"
#include "lib/tls/tls_context.h"

namespace sluice {
namespace {

std::string Field(size_t rule, absl::string_view field) {
  return absl::StrCat("access[", rule, "].", field);
}

bool IsService(absl::string_view service, absl::string_view method) {
  return absl::StartsWith(method, service) && method.substr(service.size(), 1) == "/";
}

bool Allows(absl::string_view allowed, absl::string_view method) {
  return allowed == method || IsService(allowed, method);
}

bool Contains(const AccessRule& rule, const PeerIdentity& peer) {
  if (peer.uid.has_value() && std::find(rule.uids.begin(), rule.uids.end(), *peer.uid) != rule.uids.end()) return true;
  return std::any_of(rule.names.begin(), rule.names.end(), [&peer](const std::string& name) {
    const auto is = [&name](CertificateNameKind kind) {
      return [&name, kind](const std::string& own) { return IsCertificateName(kind, own, name); };
    };
    return std::any_of(peer.dns_names.begin(), peer.dns_names.end(), is(CertificateNameKind::kDns)) ||
           std::any_of(peer.uris.begin(), peer.uris.end(), is(CertificateNameKind::kUri));
  });
}

bool ContainsMethod(const AccessRule& rule, absl::string_view method) {
  return rule.methods.empty() || std::any_of(rule.methods.begin(), rule.methods.end(),
                                             [method](const auto& allowed) { return Allows(allowed, method); });
}

bool ContainsFile(const AccessRule& rule, std::optional<absl::string_view> file) {
  if (rule.files.empty()) return true;
  return file.has_value() && std::any_of(rule.files.begin(), rule.files.end(), [&file](const std::string& prefix) {
           return absl::StartsWith(*file, prefix);
         });
}

absl::Status CheckRule(const AccessRule& rule, size_t number, absl::Span<const absl::string_view> methods) {
  if (rule.names.empty() && rule.uids.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("access[", number, "] names no clients; give names or uids"));
  }
  absl::Status status;
  for (const std::string& name : rule.names) status.Update(ValidateClientName(Field(number, "names"), name));
  for (const std::string& allowed : rule.methods) {
    if (std::any_of(methods.begin(), methods.end(),
                    [&](absl::string_view method) { return Allows(allowed, method); })) {
      continue;
    }
    status.Update(absl::InvalidArgumentError(absl::StrCat(Field(number, "methods"), ": \"", absl::CHexEscape(allowed),
                                                          "\" is none of ", absl::StrJoin(methods, ", "),
                                                          ", nor a service of these")));
  }
  for (const std::string& prefix : rule.files) {
    if (!prefix.empty()) continue;
    status.Update(absl::InvalidArgumentError(
        absl::StrCat(Field(number, "files"), ": a prefix is empty; leave out the field to allow all files")));
  }
  return status;
}

}  // namespace

std::string PeerIdentity::ToString() const {
  std::string text = absl::StrJoin(uris, ", ");
  if (!dns_names.empty()) absl::StrAppend(&text, text.empty() ? "" : ", ", absl::StrJoin(dns_names, ", "));
  if (uid.has_value()) absl::StrAppend(&text, text.empty() ? "" : ", ", "uid ", *uid);
  return text.empty() ? "a client without a name" : absl::CHexEscape(text);
}

absl::StatusOr<AccessRules> AccessRules::Create(std::vector<AccessRule> rules,
                                                absl::Span<const absl::string_view> methods) {
  for (size_t i = 0; i < rules.size(); ++i) {
    if (absl::Status valid = CheckRule(rules[i], i, methods); !valid.ok()) return valid;
  }
  AccessRules access;
  access.rules_ = std::move(rules);
  return access;
}

std::vector<uint32_t> AccessRules::Uids() const {
  std::set<uint32_t> uids;
  for (const AccessRule& rule : rules_) uids.insert(rule.uids.begin(), rule.uids.end());
  return {uids.begin(), uids.end()};
}

absl::Status AccessRules::Check(const PeerIdentity& peer, absl::string_view method,
                                std::optional<absl::string_view> file) const {
  if (rules_.empty()) return absl::OkStatus();
  std::string reason = "no rule of access has this client";
  bool method_allowed = false;
  for (size_t i = 0; i < rules_.size(); ++i) {
    const AccessRule& rule = rules_[i];
    if (!Contains(rule, peer)) continue;
    if (!ContainsMethod(rule, method)) {
      if (!method_allowed) reason = absl::StrCat(Field(i, "methods"), " does not have it");
    } else if (!ContainsFile(rule, file)) {
      method_allowed = true;
      reason = absl::StrCat(Field(i, "files"), " has no such prefix");
    } else {
      return absl::OkStatus();
    }
  }
  const std::string of_file = file.has_value() ? absl::StrCat(" of file \"", absl::CHexEscape(*file), "\"") : "";
  return absl::PermissionDeniedError(absl::StrCat(peer.ToString(), " may not call ", method, of_file, ": ", reason));
}

}  // namespace sluice
