#pragma once

#include <string>

namespace sluice::testing {

// Returns the body of http://ADDRESS/metrics. On an error it reports a test failure and returns "".
std::string ScrapeMetrics(const std::string& address);

// Scrapes until the response contains `line`. Returns false after half a minute without it.
bool WaitForMetric(const std::string& address, const std::string& line);

}  // namespace sluice::testing
