#pragma once

#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "prometheus/metric_family.h"

namespace sluice {

struct DocumentedMetric {
  std::string type;
  // The values of each label; empty where they are free (a version).
  std::map<std::string, std::set<std::string>> labels;
  friend bool operator==(const DocumentedMetric&, const DocumentedMetric&) = default;
};
void PrintTo(const DocumentedMetric& metric, std::ostream* out);  // for GoogleTest

// By name.
using MetricCatalogue = std::map<std::string, DocumentedMetric>;

// The tables of docs/metrics.md, by the heading they stand under.
std::map<std::string, MetricCatalogue> ParseCatalogue(const std::string& markdown);

// The same of a scrape. Labels in `free_labels` keep no values.
MetricCatalogue CatalogueOf(const std::vector<prometheus::MetricFamily>& families,
                            const std::set<std::string>& free_labels);

}  // namespace sluice
