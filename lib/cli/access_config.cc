#include "lib/cli/access_config.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/cli/log_limit.h"
#include "lib/cli/logging.h"
#include "lib/net/worker_address.h"

namespace sluice {
namespace {

constexpr absl::string_view kMethods[] = {"BlockService/Read", "SruService/ReadSru", "SruService/ReadManifest",
                                          "ProbeService/Probe", "ProbeService/GetTcpCounters"};

std::shared_ptr<SharedLogLimit> MakeLogLimit() {
  return std::make_shared<SharedLogLimit>(std::chrono::seconds(10), 64);
}

}  // namespace

absl::StatusOr<AccessRules> ParseAccess(const google::protobuf::RepeatedPtrField<v1::AccessRule>& config,
                                        const std::optional<ServerTls>& tls, const std::vector<std::string>& listen) {
  std::vector<AccessRule> rules;
  for (const v1::AccessRule& rule : config) {
    const std::string field = absl::StrCat("access[", rules.size(), "]");
    if (rule.names_size() > 0 && (!tls.has_value() || tls->client_ca_file.empty())) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ".names has no effect without tls.client_ca: clients show no certificate"));
    }
    if (rule.uids_size() > 0 && !std::any_of(listen.begin(), listen.end(), IsUnixAddress)) {
      return absl::InvalidArgumentError(absl::StrCat(field, ".uids has no effect: listen has no Unix socket"));
    }
    rules.push_back({.names = {rule.names().begin(), rule.names().end()},
                     .uids = {rule.uids().begin(), rule.uids().end()},
                     .methods = {rule.methods().begin(), rule.methods().end()},
                     .files = {rule.files().begin(), rule.files().end()}});
  }
  return AccessRules::Create(std::move(rules), kMethods);
}

std::function<void(const AccessRefusal&)> RefusedCallLog() {
  return [log = MakeLogLimit()](const AccessRefusal& refusal) {
    const std::optional<int64_t> unlogged = log->Take(absl::StrCat(refusal.client, " ", refusal.method));
    if (!unlogged.has_value()) return;
    Log(LogLevel::kWarning, "a call is refused",
        {{"client", refusal.client},
         {"peer", refusal.peer},
         {"method", refusal.method},
         {"reason", refusal.reason},
         {"unlogged", *unlogged}});
  };
}

std::function<void(const absl::Status& why)> RefusedCertificateLog() {
  return [log = MakeLogLimit()](const absl::Status& why) {
    const std::optional<int64_t> unlogged = log->Take(std::string(why.message()));
    if (!unlogged.has_value()) return;
    Log(LogLevel::kWarning, "a client's TLS handshake has failed",
        {{"reason", std::string(why.message())}, {"unlogged", *unlogged}});
  };
}

}  // namespace sluice
