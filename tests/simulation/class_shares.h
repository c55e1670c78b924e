#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/open_response.h"

namespace sluice::testing {

// Checks that a class keeps its share: while one of its responses waits, no other class gets more bytes by weight than
// this class does, except one grant of each (start-time fair queueing, docs/internals/scheduling.md).
class ClassShares {
 public:
  // `part_bytes` is the largest cost of one grant.
  ClassShares(std::vector<double> weights, int64_t part_bytes)
      : weights_(std::move(weights)), part_bytes_(part_bytes), waited_(weights_.size()) {}

  // Returns the breach, if there is one.
  std::optional<std::string> Check(const std::vector<OpenResponse>& responses, const std::vector<TurnGrant>& grants) {
    const size_t classes = weights_.size();
    if (classes < 2) return std::nullopt;
    std::vector<int64_t> granted_bytes(classes);
    std::vector<int64_t> perhaps_bytes(classes);
    for (const TurnGrant& grant : grants) {
      (grant.perhaps ? perhaps_bytes : granted_bytes)[grant.traffic_class] += grant.cost_bytes;
    }
    std::vector<char> waits(classes);
    std::vector<size_t> ready(classes);
    for (const OpenResponse& response : responses) {
      if (response.waits) waits[response.traffic_class] = 1;
      if (response.ready && response.rest_bytes > 0 && !response.granted) ++ready[response.traffic_class];
    }
    std::optional<std::string> breach;
    for (size_t i = 0; i < classes; ++i) {
      if (waits[i] == 0) {
        waited_[i].clear();
        continue;
      }
      waited_[i].resize(classes);
      waited_[i][i] += perhaps_bytes[i];
      for (size_t j = 0; j < classes; ++j) waited_[i][j] += granted_bytes[j];
      for (size_t j = 0; j < classes; ++j) {
        if (j == i) continue;
        if (ready[j] >= kMany && weights_[i] > weights_[j]) beside_many_ += granted_bytes[i] > 0 ? 1 : 0;
        const double most = ByWeight(waited_[i][i] + part_bytes_, i) + ByWeight(part_bytes_, j);
        if (ByWeight(waited_[i][j], j) <= kTolerance * most) continue;
        breach = absl::StrCat("while class ", i, " waited, it was granted ", waited_[i][i], " bytes, and class ", j,
                              " was granted ", waited_[i][j], "; the weights are ", weights_[i], " and ", weights_[j]);
      }
    }
    return breach;
  }
  void Restart() {
    for (auto& waited : waited_) waited.clear();
  }

  // In how many turns a class was granted bytes while so many responses of a class of less weight were ready.
  uint64_t beside_many() const { return beside_many_; }

 private:
  static constexpr size_t kMany = 500;
  // The client knows better than this check where packets end, and so what a grant costs.
  static constexpr double kTolerance = 1.25;

  double ByWeight(int64_t bytes, size_t traffic_class) const {
    return static_cast<double>(bytes) / weights_[traffic_class];
  }

  const std::vector<double> weights_;
  const int64_t part_bytes_;
  std::vector<std::vector<int64_t>> waited_;  // bytes of each class while a class waits; empty if it does not
  uint64_t beside_many_ = 0;
};

}  // namespace sluice::testing
