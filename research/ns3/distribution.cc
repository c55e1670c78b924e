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
// Messages of Homa's evaluation: Montazeri et al., "Homa: A Receiver-Driven Low-Latency Transport Protocol Using
// Network Priorities", SIGCOMM 2018, Fig. 1, with fewer points. W3: all applications of a Google datacenter, without
// the messages above 1 MB, which are 0.008 % of all messages and about a fifth of all bytes. W4: a Hadoop cluster of
// Facebook.
constexpr std::pair<double, double> kHomaW3[] = {
    {1, 0},           {2, 0.2767},      {3, 0.4612},       {4, 0.5534},       {7, 0.6457},
    {32, 0.7379},     {64, 0.7974},     {128, 0.8271},     {256, 0.8569},     {512, 0.9387},
    {1024, 0.961},    {2048, 0.974},    {4096, 0.98145},   {8192, 0.98982},   {16384, 0.99563},
    {32768, 0.99726}, {65536, 0.99807}, {131072, 0.99917}, {262144, 0.99955}, {524288, 0.99985},
    {1e6, 1}};
constexpr std::pair<double, double> kHomaW4[] = {
    {60, 0},          {92, 0.0074},      {217, 0.0149},    {271, 0.0409},    {300, 0.052},     {326, 0.1375},
    {376, 0.2026},    {425, 0.223},      {480, 0.2639},    {600, 0.4591},    {679, 0.5167},    {737, 0.552},
    {800, 0.5762},    {1042, 0.6097},    {1534, 0.6468},   {1664, 0.6673},   {2214, 0.6747},   {7830, 0.7082},
    {31946, 0.7212},  {39973, 0.7398},   {47050, 0.7788},  {51046, 0.816},   {75180, 0.842},   {81565, 0.8717},
    {102058, 0.8885}, {133013, 0.907},   {184284, 0.9257}, {240177, 0.9442}, {288520, 0.9535}, {470507, 0.9628},
    {940700, 0.9721}, {1769244, 0.9814}, {2169118, 0.987}, {1e7, 1}};

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
  const auto mix = [](Between between, const auto& points) {
    std::vector<Quantile> quantiles;
    for (const auto& [bytes, share] : points) quantiles.push_back({bytes, share});
    return Distribution(between, std::move(quantiles));
  };
  if (text == "web-search") return mix(Between::kLinear, kWebSearch);
  if (text == "cache-follower") return mix(Between::kLinear, kCacheFollower);
  if (text == "homa-w3") return mix(Between::kGeometric, kHomaW3);
  if (text == "homa-w4") return mix(Between::kGeometric, kHomaW4);
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
