#include "tests/unit/telemetry/metric_catalogue.h"

#include <sstream>

#include <gtest/gtest.h>

namespace sluice {
namespace {

// Returns the texts between back quotes, in order.
std::vector<std::string> Quoted(const std::string& text) {
  std::vector<std::string> quoted;
  std::istringstream parts(text);
  bool inside = false;
  for (std::string part; std::getline(parts, part, '`'); inside = !inside) {
    if (inside) quoted.push_back(part);
  }
  return quoted;
}

// Parses label cells: "`outcome`: `ok`, `error`" is a label with its values, "`version`, `compiler`" are two labels
// with free values, and "`worker`; `fault`: `slow`, `hung`" combines both forms.
std::map<std::string, std::set<std::string>> ParseLabels(const std::string& cell) {
  std::map<std::string, std::set<std::string>> labels;
  std::istringstream parts(cell);
  for (std::string part; std::getline(parts, part, ';');) {
    const std::vector<std::string> words = Quoted(part);
    if (part.find(':') == std::string::npos) {
      for (const std::string& label : words) labels[label];
    } else {
      labels[words.at(0)].insert(words.begin() + 1, words.end());
    }
  }
  return labels;
}

std::vector<std::string> Cells(const std::string& row) {
  std::vector<std::string> cells;
  std::istringstream parts(row.substr(1));
  for (std::string cell; std::getline(parts, cell, '|');) cells.push_back(cell);
  return cells;
}

std::string TypeName(prometheus::MetricType type) {
  switch (type) {
    case prometheus::MetricType::Counter:
      return "counter";
    case prometheus::MetricType::Gauge:
      return "gauge";
    case prometheus::MetricType::Histogram:
      return "histogram";
    default:
      return "other";
  }
}

}  // namespace

void PrintTo(const DocumentedMetric& metric, std::ostream* out) {
  *out << metric.type << " " << ::testing::PrintToString(metric.labels);
}

std::map<std::string, MetricCatalogue> ParseCatalogue(const std::string& markdown) {
  std::map<std::string, MetricCatalogue> catalogues;
  std::string heading;
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) heading = line.substr(3);
    if (!line.starts_with("| `")) continue;
    const std::vector<std::string> cells = Cells(line);
    std::string type = cells.at(1);
    std::erase(type, ' ');
    catalogues[heading][Quoted(cells.at(0)).at(0)] = {.type = type, .labels = ParseLabels(cells.at(2))};
  }
  return catalogues;
}

MetricCatalogue CatalogueOf(const std::vector<prometheus::MetricFamily>& families,
                            const std::set<std::string>& free_labels) {
  MetricCatalogue catalogue;
  for (const prometheus::MetricFamily& family : families) {
    DocumentedMetric& metric = catalogue[family.name];
    metric.type = TypeName(family.type);
    for (const prometheus::ClientMetric& sample : family.metric) {
      for (const auto& [name, value] : sample.label) {
        auto& values = metric.labels[name];
        if (!free_labels.contains(name)) values.insert(value);
      }
    }
  }
  return catalogue;
}

}  // namespace sluice
