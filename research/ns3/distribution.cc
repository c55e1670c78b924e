#include "research/ns3/distribution.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/cli/units.h"

namespace sluice::testing {
namespace {

// Sizes of flows in bytes, and the share of flows up to each size. Web search: Alizadeh et al., "Data Center TCP
// (DCTCP)", SIGCOMM 2010, Fig. 4, with the points that later papers use.
constexpr std::pair<double, double> kWebSearch[] = {{1, 0},      {10e3, 0.15}, {20e3, 0.2},  {30e3, 0.3},
                                                    {50e3, 0.4}, {80e3, 0.53}, {200e3, 0.6}, {1e6, 0.7},
                                                    {2e6, 0.8},  {5e6, 0.9},   {10e6, 0.97}, {30e6, 1}};
// Cache follower, within a cluster: Roy et al., "Inside the Social Network's (Datacenter) Network", SIGCOMM 2015, Fig.
// 6, with fewer points.
constexpr std::pair<double, double> kCacheFollower[] = {
    {71, 0},         {336, 0.177},    {536, 0.276},    {851, 0.354},    {1403, 0.409},
    {2552, 0.445},   {8443, 0.475},   {32430, 0.504},  {102994, 0.535}, {182407, 0.581},
    {282042, 0.633}, {448093, 0.683}, {815053, 0.703}, {1.43e6, 0.715}, {1.9e6, 0.764},
    {2.29e6, 0.823}, {2.74e6, 0.901}, {3.11e6, 0.981}, {3.52e6, 1}};

absl::Status NotADistribution(std::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", std::string(text),
                   "\" is no distribution; write fixed:VALUE, uniform:LEAST-MOST, log:LEAST-MOST, exp:MEAN"));
}

absl::StatusOr<double> ParseSeconds(std::string_view text) {
  const auto duration = ParseDuration(text);
  if (!duration.ok()) return duration.status();
  return absl::ToDoubleSeconds(*duration);
}

absl::StatusOr<double> ParseBytes(std::string_view text) {
  const auto bytes = ParseByteSize(text);
  if (!bytes.ok()) return bytes.status();
  return static_cast<double>(*bytes);
}

}  // namespace

Distribution::Distribution(Between between, std::vector<Quantile> quantiles)
    : between_(between), quantiles_(std::move(quantiles)) {
  if (between_ == Between::kExponential) {
    mean_ = quantiles_[0].value;
    return;
  }
  for (size_t i = 1; i < quantiles_.size(); ++i) {
    const double low = quantiles_[i - 1].value;
    const double high = quantiles_[i].value;
    const double share = quantiles_[i].share - quantiles_[i - 1].share;
    const bool geometric = between_ == Between::kGeometric && low < high;
    mean_ += share * (geometric ? (high - low) / std::log(high / low) : (low + high) / 2);
  }
}

double Distribution::Draw(Dice& dice) const {
  const double share = dice.Fraction();
  if (between_ == Between::kExponential) return -quantiles_[0].value * std::log1p(-share);
  const auto above = std::find_if(quantiles_.begin() + 1, quantiles_.end() - 1,
                                  [share](const Quantile& quantile) { return quantile.share > share; });
  const Quantile& low = *(above - 1);
  const double part = above->share > low.share ? (share - low.share) / (above->share - low.share) : 0;
  if (between_ == Between::kLinear || low.value <= 0) return low.value + part * (above->value - low.value);
  return low.value * std::pow(above->value / low.value, part);
}

template <class Parser>
absl::StatusOr<Distribution> Distribution::Parse(std::string_view text, Parser parse_value) {
  const std::vector<std::string> parts =
      absl::StrSplit(absl::string_view(text.data(), text.size()), absl::MaxSplits(':', 1));
  if (parts.size() != 2) return NotADistribution(text);
  std::vector<double> values;
  const std::vector<std::string> words = absl::StrSplit(parts[1], '-');
  for (const std::string& word : words) {
    const auto value = parse_value(word);
    if (!value.ok()) return value.status();
    values.push_back(*value);
  }
  const bool range = values.size() == 2 && values[0] <= values[1];
  if (parts[0] == "fixed" && values.size() == 1) {
    return Distribution(Between::kLinear, {{values[0], 0}, {values[0], 1}});
  }
  if (parts[0] == "exp" && values.size() == 1) return Distribution(Between::kExponential, {{values[0], 1}});
  if (parts[0] == "uniform" && range) return Distribution(Between::kLinear, {{values[0], 0}, {values[1], 1}});
  if (parts[0] == "log" && range && values[0] > 0) {
    return Distribution(Between::kGeometric, {{values[0], 0}, {values[1], 1}});
  }
  return NotADistribution(text);
}

absl::StatusOr<Distribution> Distribution::ParseSizes(std::string_view text) {
  std::vector<Quantile> quantiles;
  if (text == "web-search") {
    for (const auto& [bytes, share] : kWebSearch) quantiles.push_back({bytes, share});
  }
  if (text == "cache-follower") {
    for (const auto& [bytes, share] : kCacheFollower) quantiles.push_back({bytes, share});
  }
  if (!quantiles.empty()) return Distribution(Between::kLinear, std::move(quantiles));
  return Parse(text, ParseBytes);
}

absl::StatusOr<Distribution> Distribution::ParseTimes(std::string_view text) {
  if (text == "0") return Distribution(Between::kLinear, {{0, 0}, {0, 1}});
  const std::string all(text);
  if (all.rfind("tail:", 0) == 0) {
    const std::vector<std::string> parts = absl::StrSplit(all.substr(5), ',');
    double share = 0;
    if (parts.size() != 3 || !absl::SimpleAtod(parts[1], &share) || share < 0 || share > 1) {
      return NotADistribution(text);
    }
    const auto most = ParseSeconds(parts[0]);
    const auto tail = ParseSeconds(parts[2]);
    if (!most.ok()) return most.status();
    if (!tail.ok()) return tail.status();
    return Distribution(Between::kLinear, {{*most, 0}, {*most, 1 - share}, {*tail, 1 - share}, {*tail, 1}});
  }
  return Parse(text, ParseSeconds);
}

}  // namespace sluice::testing
