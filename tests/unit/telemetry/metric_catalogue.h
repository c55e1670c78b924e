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
  // The values of each label; empty if any value is possible (a version).
  std::map<std::string, std::set<std::string>> labels;
  friend bool operator==(const DocumentedMetric&, const DocumentedMetric&) = default;
};
void PrintTo(const DocumentedMetric& metric, std::ostream* out);  // for GoogleTest

// Metrics by name.
using MetricCatalogue = std::map<std::string, DocumentedMetric>;

// Parses the tables of docs/reference/metrics.md, by their headings.
std::map<std::string, MetricCatalogue> ParseCatalogue(const std::string& markdown);

// Returns the catalogue of a scrape. Labels in `free_labels` keep no values.
MetricCatalogue CatalogueOf(const std::vector<prometheus::MetricFamily>& families,
                            const std::set<std::string>& free_labels);

}  // namespace sluice
