#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/simulation/faults.h"

namespace sluice::testing {

// A distribution of sizes in bytes, or of times in seconds. An immutable value.
class Distribution {
 public:
  // Parses "fixed:32kb", "uniform:1kb-9kb", "log:2kb-1mb" (log-uniform), "exp:10kb" (its mean), or a published mix,
  // "web-search", "cache-follower", "homa-w3" or "homa-w4" (see the .cc). InvalidArgument quotes the text.
  static absl::StatusOr<Distribution> ParseSizes(std::string_view text);
  // Parses the same forms for times, without the mixes: "fixed:10ms", or "0" for none. "tail:2ms,0.05,200ms" is 200 ms
  // for a share of 0.05, and 2 ms otherwise.
  static absl::StatusOr<Distribution> ParseTimes(std::string_view text);

  double Draw(Dice& dice) const;
  double mean() const { return mean_; }

 private:
  // A point of the quantile function, which is linear or geometric between points.
  struct Quantile {
    double value = 0;
    double share = 0;
  };
  enum class Between { kLinear, kGeometric, kExponential };

  Distribution(Between between, std::vector<Quantile> quantiles);
  template <class Parser>
  static absl::StatusOr<Distribution> Parse(std::string_view text, Parser parse_value);

  Between between_;
  std::vector<Quantile> quantiles_;
  double mean_ = 0;
};

}  // namespace sluice::testing
