#include "lib/storage/serving/access_control.h"

#include <cstddef>
#include <utility>
#include <vector>

#include <grpcpp/security/auth_context.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/tcp/peer_name.h"
#include "lib/telemetry/metric_families.h"
#include "lib/tls/certificate_name.h"

namespace sluice {
namespace {

constexpr std::array<const char*, 3> kServices = {"BlockService", "SruService", "ProbeService"};
// gRPC has these from a certificate that an authority has signed. A client cannot set them.
constexpr char kDnsNames[] = "peer_dns";
constexpr char kUris[] = "peer_uri";
constexpr char kUid[] = "sluice_uid";

std::vector<std::string> Values(const grpc::AuthContext& context, const char* name) {
  std::vector<std::string> values;
  for (const grpc::string_ref& value : context.FindPropertyValues(name))
    values.emplace_back(value.data(), value.size());
  return values;
}

PeerIdentity IdentityOf(const grpc::CallbackServerContext& context) {
  const auto known = context.auth_context();
  if (known == nullptr) return {};
  PeerIdentity peer{.dns_names = Values(*known, kDnsNames), .uris = Values(*known, kUris)};
  std::erase_if(peer.dns_names, [](const auto& name) { return !IsOfItsKind(CertificateNameKind::kDns, name); });
  std::erase_if(peer.uris, [](const auto& name) { return !IsOfItsKind(CertificateNameKind::kUri, name); });
  const std::vector<std::string> uids = Values(*known, kUid);
  uint32_t uid = 0;
  if (uids.size() == 1 && absl::SimpleAtoi(uids.front(), &uid)) peer.uid = uid;
  return peer;
}

}  // namespace

AccessControl::AccessControl(AccessRules rules, prometheus::Registry& registry,
                             std::function<void(const AccessRefusal&)> on_refused)
    : rules_(std::move(rules)),
      on_refused_(std::move(on_refused)),
      refusals_(MakeCounters(registry, "sluice_access_refusals_total", "Calls that no rule of access allows.",
                             "service", kServices)) {}

absl::Status AccessControl::Check(const grpc::CallbackServerContext& context, absl::string_view method,
                                  std::optional<absl::string_view> file) {
  if (rules_.empty()) return absl::OkStatus();
  const PeerIdentity peer = IdentityOf(context);
  absl::Status allowed = rules_.Check(peer, method, file);
  if (allowed.ok()) return allowed;
  for (size_t i = 0; i < kServices.size(); ++i) {
    if (absl::StartsWith(method, absl::StrCat(kServices[i], "/"))) refusals_[i]->Increment();
  }
  on_refused_({.client = peer.ToString(),
               .peer = context.peer(),
               .method = std::string(method),
               .reason = std::string(allowed.message())});
  return allowed;
}

absl::Status CheckAccess(AccessControl* access, const grpc::CallbackServerContext& context, absl::string_view method,
                         std::optional<absl::string_view> file) {
  return access != nullptr ? access->Check(context, method, file) : absl::OkStatus();
}

std::string ClientName(const grpc::CallbackServerContext& context) {
  const PeerIdentity identity = IdentityOf(context);
  if (!identity.dns_names.empty() || !identity.uris.empty() || identity.uid.has_value()) return identity.ToString();
  const std::string peer = context.peer();
  const std::optional<TcpEndpoint> endpoint = ParsePeerName(peer);
  return endpoint.has_value() ? endpoint->address().to_string() : peer;
}

UidProcessor::UidProcessor(uint32_t uid) : uid_(absl::StrCat(uid)) {}

grpc::Status UidProcessor::Process(const InputMetadata&, grpc::AuthContext* context, OutputMetadata*, OutputMetadata*) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (context->FindPropertyValues(kUid).empty()) context->AddProperty(kUid, uid_);
  return grpc::Status::OK;
}

}  // namespace sluice
