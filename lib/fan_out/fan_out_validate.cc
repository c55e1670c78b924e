#include "lib/fan_out/fan_out_validate.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/metadata.h"

namespace sluice {
namespace {

absl::Status CheckMethod(const std::string& method) {
  const size_t slash = method.rfind('/');
  if (!method.empty() && method[0] == '/' && slash > 1 && slash + 1 < method.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("method: \"", method, "\" is not /package.Service/Method"));
}

absl::Status CheckLimits(const FanOutOptions& options, size_t asked) {
  if (options.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout: ", absl::FormatDuration(options.timeout), " is not above 0"));
  }
  if (options.fail_limit.value_or(0) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("fail_limit: ", *options.fail_limit, " is below 0"));
  }
  if (options.success_quorum.has_value() &&
      (*options.success_quorum < 1 || static_cast<size_t>(*options.success_quorum) > asked)) {
    return absl::InvalidArgumentError(absl::StrCat("success_quorum: ", *options.success_quorum,
                                                   " is not between 1 and the number of workers asked, ", asked));
  }
  return absl::OkStatus();
}

absl::Status CheckRetries(const FanOutOptions& options) {
  if (options.attempt_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attempt_timeout: ", absl::FormatDuration(options.attempt_timeout), " is not above 0"));
  }
  if (!(options.retry_ratio >= 0 && options.retry_ratio <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("retry_ratio: ", options.retry_ratio, " is outside of 0 to 1"));
  }
  if (std::count(options.retry_on.begin(), options.retry_on.end(), absl::StatusCode::kOk) > 0) {
    return absl::InvalidArgumentError("retry_on: OK is no failure; name statuses after which a replica is tried");
  }
  return absl::OkStatus();
}

// Hedges go to replicas: without one they would do nothing, silently.
absl::Status CheckReplicasOfHedges(const std::vector<std::optional<Ask<std::string>>>& asks, size_t asked,
                                   const FanOutOptions& options) {
  const bool hedges = options.hedge_after.has_value() || options.hedge_after_quantile.has_value();
  if (!hedges || options.hedge_ratio == 0 || asked == 0) return absl::OkStatus();
  const auto has_replica = [](const auto& ask) { return ask.has_value() && !ask->replicas.empty(); };
  if (std::any_of(asks.begin(), asks.end(), has_replica)) return absl::OkStatus();
  const std::string option = options.hedge_after.has_value()
                                 ? absl::StrCat("hedge_after is ", absl::FormatDuration(*options.hedge_after))
                                 : absl::StrCat("hedge_after_quantile is ", *options.hedge_after_quantile);
  return absl::InvalidArgumentError(absl::StrCat(option, ", but none of the ", asked,
                                                 " asks names a replica; set Ask::replicas in at least 1, or leave it "
                                                 "unset"));
}

absl::Status CheckAsk(size_t primary, const Ask<std::string>& ask, size_t workers) {
  if (ask.response_bytes.has_value() && (*ask.response_bytes < 0 || *ask.response_bytes > kMaxResponseBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("ask of worker ", primary, ": response_bytes: ", *ask.response_bytes,
                                                   " is outside of 0 to ", kMaxResponseBytes));
  }
  std::vector<size_t> sorted = ask.replicas;
  sorted.push_back(primary);
  if (absl::Status valid = ValidateMetadata(ask.metadata); !valid.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("ask of worker ", primary, ": ", valid.message()));
  }
  std::sort(sorted.begin(), sorted.end());
  if (sorted.back() >= workers) {
    return absl::InvalidArgumentError(absl::StrCat("ask of worker ", primary, ": replica ", sorted.back(),
                                                   " is not one of the workers 0 to ", workers - 1));
  }
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ask of worker ", primary, ": worker ", *twice, " is named twice, itself or among its replicas"));
}

}  // namespace

absl::Status ValidateHedging(const std::optional<absl::Duration>& hedge_after,
                             const std::optional<double>& hedge_after_quantile, double hedge_ratio) {
  if (hedge_after.has_value() && hedge_after_quantile.has_value()) {
    return absl::InvalidArgumentError("hedge_after and hedge_after_quantile are both set; set one");
  }
  if (hedge_after.has_value() && *hedge_after <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("hedge_after: ", absl::FormatDuration(*hedge_after), " is not above 0"));
  }
  if (hedge_after_quantile.has_value() && !(*hedge_after_quantile > 0 && *hedge_after_quantile < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("hedge_after_quantile: ", *hedge_after_quantile, " is not between 0 and 1"));
  }
  if (!(hedge_ratio >= 0 && hedge_ratio <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("hedge_ratio: ", hedge_ratio, " is outside of 0 to 1"));
  }
  return absl::OkStatus();
}

absl::Status CheckTrafficClass(const std::vector<TrafficClass>& classes, const std::string& name) {
  const absl::Status known = TrafficClassIndex(classes, name).status();
  return known.ok() ? known : absl::InvalidArgumentError(absl::StrCat("traffic_class: ", known.message()));
}

absl::Status ValidateFanOut(const std::string& method, const std::vector<std::optional<Ask<std::string>>>& asks,
                            const FanOutOptions& options) {
  const auto skipped = [](const auto& ask) { return !ask.has_value(); };
  const auto asked = asks.size() - static_cast<size_t>(std::count_if(asks.begin(), asks.end(), skipped));
  absl::Status status = CheckMethod(method);
  status.Update(CheckLimits(options, asked));
  status.Update(CheckRetries(options));
  status.Update(ValidateHedging(options.hedge_after, options.hedge_after_quantile, options.hedge_ratio));
  status.Update(CheckReplicasOfHedges(asks, asked, options));
  status.Update(ValidateMetadata(options.metadata));
  for (size_t worker = 0; worker < asks.size(); ++worker) {
    if (asks[worker].has_value()) status.Update(CheckAsk(worker, *asks[worker], asks.size()));
  }
  return status;
}

}  // namespace sluice
