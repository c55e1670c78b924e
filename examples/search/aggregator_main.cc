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
#include "examples/search/index_layout.h"
#include "examples/search/mid_level_service.h"
#include "examples/search/schedule_flags.h"
#include "examples/search/shard_server.h"
#include "lib/cli/logging.h"
#include "lib/cli/program.h"
#include "lib/cli/ready_file.h"
#include "lib/cli/termination_signal.h"
#include "lib/cli/tls_flags.h"
#include "lib/cli/units.h"
#include "lib/net/io_thread.h"

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
      absl::StrCat("part: \"", text, "\" is not like 1/4: a part, counted from 0, of at most ", kMaxShards, " parts"));
}

class Aggregator {
 public:
  void AddFlags(CLI::App& app) {
    app.add_option("--listen", listen_, "Address to serve on, host:port; port 0 takes a free one")->required();
    app.add_option("--workers", options_.workers,
                   "Address of each search-worker of this part, host:port, separated by commas")
        ->required()
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_option("--part", part_text_,
                   "Which part of the index to serve, and the number of parts: 0/2 serves every second shard")
        ->required();
    app.add_option("--timeout", timeout_text_,
                   "Time for a query, unless the caller's deadline is earlier. Default 10s");
    app.add_option("--deadline_reserve", reserve_text_,
                   "Part of the caller's deadline that is kept for the way of the answer to the caller. Default 5ms");
    app.add_option("--ready_file", ready_file_, "File to write the bound address to when the server serves");
    schedule_flags_.Add(app, options_.fan_out);
    AddTlsFlags(app, tls_config_, TlsRole::kServerAndClient);
  }

  absl::Status Configure() {
    absl::Status status = schedule_flags_.Parse(schedule_, options_.fan_out);
    const absl::StatusOr<IndexPart> part = ParsePart(part_text_);
    status.Update(part.status());
    status.Update(ParseField("timeout", timeout_text_, ParseDuration, service_.timeout));
    status.Update(ParseField("deadline_reserve", reserve_text_, ParseDuration, service_.deadline_reserve));
    if (part.ok()) options_.part = service_.part = *part;
    options_.fan_out.timeout = service_.timeout;
    // Report any coverage upwards: the level above decides whether it is sufficient.
    options_.fan_out.fail_limit = std::numeric_limits<int>::max();
    const absl::StatusOr<TlsSettings> tls = ParseTlsConfig(tls_config_, TlsRole::kServerAndClient);
    status.Update(tls.ok() ? CheckTlsFiles(*tls) : tls.status());
    if (!status.ok()) return status;
    tls_ = *tls;
    options_.tls = tls_.client;
    return absl::OkStatus();
  }

  absl::Status Run() const {
    IoThread io_thread;
    TerminationSignal termination(io_thread.context());
    auto link = Link::Create(Link::Options{.schedule = schedule_});
    if (!link.ok()) return link.status();
    auto searcher = Searcher::Create(*link, options_);
    if (!searcher.ok()) return searcher.status();
    MidLevelService service(*std::move(searcher), service_);
    absl::StatusOr<ShardServer> server = ShardServer::Start(service, listen_, tls_.server);
    if (!server.ok()) return server.status();
    Log(LogLevel::kInfo, "serving",
        {{"listen", server->address()}, {"part", part_text_}, {"shards", service.shards()}});
    WarnWithoutTls(tls_.server, {server->address()});
    if (absl::Status written = WriteReadyFile(ready_file_, {server->address()}); !written.ok()) return written;
    termination.Wait();
    server->Drain();
    return absl::OkStatus();
  }

 private:
  std::string listen_;
  std::string part_text_;
  std::string timeout_text_;
  std::string reserve_text_;
  std::string ready_file_;
  sluice::v1::TlsConfig tls_config_;
  TlsSettings tls_;
  ScheduleFlags schedule_flags_;
  ScheduleOptions schedule_;
  Searcher::Options options_;
  MidLevelService::Options service_;
};

}  // namespace
}  // namespace sluice::examples::search

int main(int argc, char** argv) {
  sluice::examples::search::Aggregator aggregator;
  return sluice::RunProgram(argc, argv,
                            {.name = "search-aggregator",
                             .description = "Serves a part of an index as one shard, over the workers that have it.",
                             .add_flags = [&](CLI::App& app) { aggregator.AddFlags(app); },
                             .configure = [&] { return aggregator.Configure(); },
                             .run = [&] { return aggregator.Run(); }});
}
