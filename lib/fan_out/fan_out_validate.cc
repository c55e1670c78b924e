#include <algorithm>
#include <string>
#include <utility>

#include <grpc/grpc.h>
#include <grpcpp/support/slice.h>

#include "sluice/plan.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/fan_out/fan_out_run.h"

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
  if (options.fail_limit < 0) {
    return absl::InvalidArgumentError(absl::StrCat("fail_limit: ", options.fail_limit, " is below 0"));
  }
  if (options.success_quorum.has_value() &&
      (*options.success_quorum < 1 || static_cast<size_t>(*options.success_quorum) > asked)) {
    return absl::InvalidArgumentError(absl::StrCat("success_quorum: ", *options.success_quorum,
                                                   " is not between 1 and the number of workers asked, ", asked));
  }
  return absl::OkStatus();
}

absl::Status CheckHedging(const FanOutOptions& options) {
  if (options.hedge_after.has_value() && options.hedge_after_quantile.has_value()) {
    return absl::InvalidArgumentError("hedge_after and hedge_after_quantile are both set; set one");
  }
  if (options.hedge_after.has_value() && *options.hedge_after <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("hedge_after: ", absl::FormatDuration(*options.hedge_after), " is not above 0"));
  }
  if (options.hedge_after_quantile.has_value() &&
      !(*options.hedge_after_quantile > 0 && *options.hedge_after_quantile < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("hedge_after_quantile: ", *options.hedge_after_quantile, " is not between 0 and 1"));
  }
  if (!(options.hedge_ratio >= 0 && options.hedge_ratio <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("hedge_ratio: ", options.hedge_ratio, " is outside of 0 to 1"));
  }
  return absl::OkStatus();
}

// gRPC ends the process over a key or a value that HTTP/2 cannot carry.
absl::Status CheckMetadata(const std::pair<std::string, std::string>& entry) {
  const grpc::Slice key(entry.first.data(), entry.first.size(), grpc::Slice::STATIC_SLICE);
  const grpc::Slice value(entry.second.data(), entry.second.size(), grpc::Slice::STATIC_SLICE);
  const grpc_slice raw_key = key.c_slice();
  const grpc_slice raw_value = value.c_slice();
  const bool key_is_legal = grpc_header_key_is_legal(raw_key) != 0;
  const bool value_is_legal =
      key_is_legal && (grpc_is_binary_header(raw_key) != 0 || grpc_header_nonbin_value_is_legal(raw_value) != 0);
  grpc_slice_unref(raw_key);
  grpc_slice_unref(raw_value);
  if (!key_is_legal) {
    return absl::InvalidArgumentError(absl::StrCat("metadata: the key \"", absl::CHexEscape(entry.first),
                                                   "\" has other characters than a-z, 0-9, -, _ and ., or none"));
  }
  if (value_is_legal) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("metadata: the value \"", absl::CHexEscape(entry.second), "\" of ", entry.first,
                   " has other characters than printable ASCII; bytes need a key that ends in -bin"));
}

absl::Status CheckAsk(const FanOutRun::WorkerAsk& ask, size_t workers) {
  const size_t primary = ask.workers.front();
  if (ask.response_bytes.has_value() && (*ask.response_bytes < 0 || *ask.response_bytes > kMaxResponseBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("ask of worker ", primary, ": response_bytes: ", *ask.response_bytes,
                                                   " is outside of 0 to ", kMaxResponseBytes));
  }
  std::vector<size_t> sorted = ask.workers;
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

absl::Status FanOutRun::Validate(const Spec& spec, const WorkerChannels& channels) {
  absl::Status status = CheckMethod(spec.method);
  status.Update(CheckLimits(spec.options, spec.asks.size()));
  status.Update(CheckHedging(spec.options));
  for (const auto& entry : spec.options.metadata) status.Update(CheckMetadata(entry));
  for (const WorkerAsk& ask : spec.asks) status.Update(CheckAsk(ask, channels.size()));
  return status;
}

}  // namespace sluice
