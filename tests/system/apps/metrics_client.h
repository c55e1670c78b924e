#pragma once

#include <string>

namespace sluice::testing {

// The body of http://ADDRESS/metrics. A test failure, and nothing, where it cannot be had.
std::string ScrapeMetrics(const std::string& address);

// Scrapes until a line of the answer is `line`. False after half a minute without it.
bool WaitForMetric(const std::string& address, const std::string& line);

}  // namespace sluice::testing
