#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"

namespace sluice {

inline std::vector<prometheus::MetricFamily> Scrape(
    std::initializer_list<const prometheus::Collectable*> collectables) {
  std::vector<prometheus::MetricFamily> families;
  for (const prometheus::Collectable* collectable : collectables) {
    for (prometheus::MetricFamily& family : collectable->Collect()) families.push_back(std::move(family));
  }
  return families;
}

// Returns the text that Prometheus would receive, after an empty line so that every sample follows a line break.
inline std::string ScrapeText(std::initializer_list<const prometheus::Collectable*> collectables) {
  return "\n" + prometheus::TextSerializer().Serialize(Scrape(collectables));
}

}  // namespace sluice
