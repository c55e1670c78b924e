// search-aggregator: serves one part of an index as one shard, for trees of aggregators. It calls its own
// search-workers (or search-aggregators) over its own bottleneck link, and serves their merged hits to the level above.

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "sluice/link.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "index_layout.h"
#include "link_flags.h"
#include "mid_level_service.h"
#include "program.h"
#include "shard_server.h"

namespace sluice::examples::search {
namespace {

// Parses "1/4" as part 1 of the parts 0 to 3.
absl::StatusOr<IndexPart> ParsePart(const std::string& text) {
  IndexPart part;
  const std::pair<std::string, std::string> words = absl::StrSplit(text, absl::MaxSplits('/', 1));
  if (absl::SimpleAtoi(words.first, &part.index) && absl::SimpleAtoi(words.second, &part.count) &&
      part.index < part.count && part.count <= kMaxShards) {
    return part;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is not like 1/4: a part, counted from 0, of at most ", kMaxShards, " parts"));
}

class Aggregator {
 public:
  explicit Aggregator(CLI::App& app) {
    AddShardServerFlags(app, server_);
    app.add_option("--workers", options_.workers,
                   "Address of each search-worker of this part, host:port, separated by commas")
        ->required()
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_option_function<std::string>(
           "--part",
           [this](const std::string& text) {
             const absl::StatusOr<IndexPart> part = ParsePart(text);
             if (!part.ok()) throw CLI::ValidationError("--part", std::string(part.status().message()));
             options_.part = service_.part = *part;
             part_text_ = text;
           },
           "Which part of the index to serve, and the number of parts: 0/2 serves every second shard")
        ->required();
    AddDuration(
        app, "--timeout", [this](absl::Duration timeout) { service_.timeout = timeout; },
        "Time for a query, unless the caller's deadline is earlier. Default 10s");
    AddDuration(
        app, "--deadline-reserve", [this](absl::Duration reserve) { service_.deadline_reserve = reserve; },
        "Part of the caller's deadline that is kept for the response's way to the caller. Default 5ms");
    AddLinkFlags(app, schedule_, options_);
  }

  absl::Status Run() {
    const sigset_t termination = BlockTerminationSignals();
    options_.fan_out.timeout = service_.timeout;
    // Report any coverage upwards: the level above decides whether it is sufficient.
    options_.fan_out.fail_limit = std::numeric_limits<int>::max();
    auto link = Link::Create(Link::Options{.schedule = schedule_});
    if (!link.ok()) return link.status();
    auto searcher = Searcher::Create(*link, options_);
    if (!searcher.ok()) return searcher.status();
    MidLevelService service(*std::move(searcher), service_);
    return ServeShards(service, server_, termination,
                       absl::StrCat("part ", part_text_, " of the index, ", service.shards(), " shards"));
  }

 private:
  ShardServerOptions server_;
  std::string part_text_;
  ScheduleOptions schedule_;
  Searcher::Options options_;
  MidLevelService::Options service_;
};

}  // namespace
}  // namespace sluice::examples::search

int main(int argc, char** argv) {
  CLI::App app("Serves a part of an index as one shard, over the workers that have it.", "search-aggregator");
  sluice::examples::search::Aggregator aggregator(app);
  return sluice::examples::search::RunProgram(app, argc, argv, [&] { return aggregator.Run(); });
}
