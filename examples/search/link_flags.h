#pragma once

#include "sluice/schedule.h"

#include "searcher.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 named it
class App;
}

namespace sluice::examples::search {

// Adds the flags of a program that searches over a link: the link, its schedule, hedges, and TLS to the workers. The
// options must outlive the app.
void AddLinkFlags(CLI::App& app, ScheduleOptions& schedule, Searcher::Options& options);

}  // namespace sluice::examples::search
