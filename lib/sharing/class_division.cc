#include "lib/sharing/class_division.h"

#include <cassert>
#include <utility>

#include "lib/sharing/share_division.h"

namespace sluice {
namespace {

bool Differ(double a, double b) {
  constexpr double kMost = 1.0625;  // of a client that reported and one that did not: an eighth
  return !(a <= kMost * b && b <= kMost * a);
}

}  // namespace

void ClassDivision::Add(ClientClaim& claim) {
  claim.position = claims_.size();
  claims_.push_back(&claim);
  for (const ClassClaim& of : claim.classes) classes_.resize(std::max(classes_.size(), of.traffic_class + 1));
  Count(claim);
}

void ClassDivision::Remove(ClientClaim& claim) {
  assert(claims_[claim.position] == &claim);
  Uncount(claim);
  claims_.back()->position = claim.position;
  claims_[claim.position] = claims_.back();
  claims_.pop_back();
}

void ClassDivision::Count(ClientClaim& claim) {
  weights_ += claim.weight;
  claim.class_weights = 0;
  double wanted = 0;
  for (const ClassClaim& of : claim.classes) {
    claim.class_weights += of.weight;
    if (classes_[of.traffic_class].busy) wanted += of.weight;
  }
  for (ClassClaim& of : claim.classes) {
    Class& to = classes_[of.traffic_class];
    of.class_weight = to.busy ? claim.weight * of.weight / wanted : 0;
    of.capped_bytes = std::min(of.demand_bytes, bytes_);
    of.met = static_cast<double>(of.capped_bytes) <= to.scale.level * claim.weight;
    to.weight += of.class_weight;
    if (of.demand_bytes == 0) continue;
    ++to.clients;
    to.client_weights += claim.weight;
    to.demand_bytes += of.capped_bytes;
    if (of.met) {
      to.met_bytes += of.capped_bytes;
    } else {
      to.unmet_weights += claim.weight;
    }
  }
}

void ClassDivision::Uncount(const ClientClaim& claim) {
  weights_ -= claim.weight;
  for (const ClassClaim& of : claim.classes) {
    Class& from = classes_[of.traffic_class];
    from.weight -= of.class_weight;
    if (of.demand_bytes == 0) continue;
    --from.clients;
    from.client_weights -= claim.weight;
    from.demand_bytes -= of.capped_bytes;
    if (of.met) {
      from.met_bytes -= of.capped_bytes;
    } else {
      from.unmet_weights -= claim.weight;
    }
  }
}

// Counts all claims again, by the classes that have traffic now.
void ClassDivision::CountAll() {
  busy_classes_ = 0;
  for (Class& each : classes_) {
    const bool busy = each.clients > 0;
    busy_classes_ += busy ? 1 : 0;
    each = Class();
    each.busy = busy;
  }
  weights_ = 0;
  for (ClientClaim* claim : claims_) Count(*claim);
  Solve();
}

// Compares all demands with the level. Returns whether that changes the level.
bool ClassDivision::Meet() {
  bool changed = false;
  for (ClientClaim* claim : claims_) {
    for (ClassClaim& of : claim->classes) {
      Class& each = classes_[of.traffic_class];
      const bool met = static_cast<double>(of.capped_bytes) <= each.scale.level * claim->weight;
      if (of.demand_bytes == 0 || std::exchange(of.met, met) == met) continue;
      changed = true;
      each.met_bytes += met ? of.capped_bytes : -of.capped_bytes;
      each.unmet_weights += met ? -claim->weight : claim->weight;
    }
  }
  return changed;
}

// Sets the parts of the classes, and the level of each class at which its clients take its part.
void ClassDivision::Solve() {
  std::vector<ShareClaim> wanted;
  double weights = 0;
  for (const Class& each : classes_) {
    if (!each.busy) continue;
    wanted.push_back({.weight = each.weight, .cap_bytes = std::min(each.demand_bytes, bytes_)});
    weights += each.weight;
  }
  const std::vector<int64_t> parts = DivideByWeight(bytes_, wanted);
  auto part = parts.begin();
  for (Class& each : classes_) {
    if (!each.busy) continue;
    const auto fair_bytes = static_cast<double>(bytes_) * each.weight / weights;
    each.scale = {.fair_by_weight = fair_bytes / each.client_weights,
                  .fair_by_byte = fair_bytes / static_cast<double>(std::max<int64_t>(*part, 1))};
    if (each.demand_bytes > *part) {
      // At most the right level, since clients that compare wrongly with it count for too much.
      const int64_t unmet_bytes = std::max<int64_t>(*part - each.met_bytes, 0);
      each.scale.level = unmet_bytes == 0 ? 0 : static_cast<double>(unmet_bytes) / each.unmet_weights;
    }
    ++part;
  }
}

bool ClassDivision::Moved() const {
  return std::any_of(classes_.begin(), classes_.end(), [](const Class& each) {
    const Scale& before = each.all_scale;
    return Differ(before.level, each.scale.level) || Differ(before.fair_by_weight, each.scale.fair_by_weight) ||
           Differ(before.fair_by_byte, each.scale.fair_by_byte);
  });
}

bool ClassDivision::Divide(int64_t bytes) {
  const auto turned = [](const Class& each) { return each.busy != (each.clients > 0); };
  if (bytes != std::exchange(bytes_, bytes) || std::any_of(classes_.begin(), classes_.end(), turned)) {
    CountAll();
  } else {
    Solve();
    if (!Moved()) return false;
  }
  // From the second step on the level only grows, and it is exact when no demand compares differently.
  while (Meet()) Solve();
  for (Class& each : classes_) each.all_scale = each.scale;
  return true;
}

ClassPart ClassDivision::PartOf(const ClientClaim& client, const ClassClaim& claim) const {
  if (claim.demand_bytes == 0) {
    const double part = client.weight / weights_ * claim.weight / client.class_weights;
    return {.bytes = 0, .fair_bytes = static_cast<int64_t>(static_cast<double>(bytes_) * part)};
  }
  const Scale& scale = classes_[claim.traffic_class].scale;
  const double part = std::min(static_cast<double>(claim.capped_bytes), scale.level * client.weight);
  const double fair = std::max(scale.fair_by_byte * part, scale.fair_by_weight * client.weight);
  return {.bytes = static_cast<int64_t>(part), .fair_bytes = static_cast<int64_t>(fair)};
}

}  // namespace sluice
