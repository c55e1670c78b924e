#include <algorithm>
#include <cmath>

#include "lib/model/collapse.h"

namespace sluice {
namespace {

constexpr double kPi = 3.14159265358979323846;

// exp(z²)·erfc(z), a function that the C++ library lacks. For large z the factors overflow and vanish, and the product
// is about 1/z.
double ScaledErfc(double z) {
  if (z < 25) return std::exp(z * z) * std::erfc(z);
  const double half_of_inverse_square = 0.5 / (z * z);
  // The asymptotic series (Abramowitz and Stegun 7.1.23); the next term is below 1e-12 from z = 25 on.
  double term = 1;
  double sum = 1;
  for (const int factor : {1, 3, 5}) {
    term *= -factor * half_of_inverse_square;
    sum += term;
  }
  return sum / (z * std::sqrt(kPi));
}

double Power(double base, int64_t exponent) {
  return std::exp(static_cast<double>(exponent) * std::log(base));
}

// Returns the probability that fewer than `limit` of `packets` arrive. Each packet arrives with the probability
// `arrives`.
double FewerArrive(double arrives, int64_t packets, int64_t limit) {
  double ways = 1;
  double sum = 0;
  for (int64_t arrived = 0; arrived < limit && arrived <= packets; ++arrived) {
    sum += ways * Power(arrives, arrived) * Power(1 - arrives, packets - arrived);
    ways *= static_cast<double>(packets - arrived) / static_cast<double>(arrived + 1);
  }
  return sum;
}

}  // namespace

double FullLossProbability(double loss, double window_packets, double window_deviation) {
  if (!(loss > 0)) return 0;
  const double log_loss = std::log(std::min(loss, 1.0));
  if (!(window_deviation > 0)) return std::exp(window_packets * log_loss);
  const double variance = window_deviation * window_deviation;
  const double z = -(window_packets + variance * log_loss) / (std::sqrt(2.0) * window_deviation);
  // (13) is exp(w·ln p + ½σ²(ln p)²)·½·erfc(z). For z <= 0 the exponent is at most 0. For z > 0 it may be far above 0,
  // and erfc(z) as far below; but then it equals z² − w²/(2σ²).
  if (z <= 0) {
    const double exponent = window_packets * log_loss + 0.5 * variance * log_loss * log_loss;
    return 0.5 * std::exp(exponent) * std::erfc(z);
  }
  const double mean_in_deviations = window_packets / window_deviation;
  return 0.5 * std::exp(-0.5 * mean_in_deviations * mean_in_deviations) * ScaledErfc(z);
}

double FullLossBound(double loss, double window_packets, double window_deviation) {
  if (!(loss > 0)) return 0;
  const double log_loss = std::log(std::min(loss, 1.0));
  const double spread = window_deviation * log_loss;
  return std::min(1.0, std::exp(window_packets * log_loss + 0.5 * spread * spread));
}

// Sums over the number of packets that follow the first lost packet. The sum begins at the largest terms and ends at
// negligible ones, since a window may have 2^32 packets.
double LackOfAcksProbability(double loss, int64_t window_packets, int64_t duplicate_acks) {
  if (!(loss > 0) || loss >= 1) return 0;
  const double arrives = 1 - loss;
  const bool losses_are_rare = loss < 0.5;
  double sum = 0;
  for (int64_t i = 0; i < window_packets; ++i) {
    const int64_t after = losses_are_rare ? i : window_packets - 1 - i;
    const int64_t before = window_packets - 1 - after;
    const double term = Power(arrives, before) * loss * FewerArrive(arrives, after, duplicate_acks);
    sum += term;
    if (i > duplicate_acks && term <= 1e-18 * sum) break;
  }
  // Subtract the windows of which no packet arrives.
  return std::max(0.0, sum - Power(loss, window_packets));
}

double ProbabilityOfAny(double probability, double trials) {
  if (!(probability > 0) || !(trials > 0)) return 0;
  return -std::expm1(trials * std::log1p(-std::min(probability, 1.0)));
}

}  // namespace sluice
