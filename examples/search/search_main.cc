// search: calls all shards of an index over one bottleneck link, and prints the best documents.

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include "sluice/link.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "link_flags.h"
#include "program.h"
#include "query_bounds.h"
#include "searcher.h"

namespace sluice::examples::search {
namespace {

// Formats a snippet for a terminal. In a file, matches are between asterisks.
std::string PlainText(const std::string& snippet_html, bool terminal) {
  return absl::StrReplaceAll(snippet_html, {{"\n", " "},
                                            {"<b>", terminal ? "\033[1m" : "*"},
                                            {"</b>", terminal ? "\033[0m" : "*"},
                                            {"&lt;", "<"},
                                            {"&gt;", ">"},
                                            {"&quot;", "\""},
                                            {"&amp;", "&"}});
}

class Search {
 public:
  explicit Search(CLI::App& app) {
    app.add_option("--workers", options_.workers,
                   "Address of each search-worker or search-aggregator, host:port, separated by commas")
        ->required()
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_option("--top-k", options_.top_k, "Number of hits to print, 1 to 1000. Default 10")
        ->check(CLI::Range(1U, kMaxHits));
    app.add_option("--snippet", options_.snippet_bytes, "Bytes of text to print with each hit, 0 to 4kb. Default 200")
        ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
        ->check(CLI::Range(0U, kMaxSnippetBytes));
    app.add_option("--fail-limit", options_.fan_out.fail_limit.emplace(0),
                   "Maximum number of workers that may fail; if some do, the exit code is 3. Default 0")
        ->check(CLI::Range(0, std::numeric_limits<int>::max()));
    AddDuration(
        app, "--timeout", [this](absl::Duration timeout) { options_.fan_out.timeout = timeout; },
        "Time for each query. Default 10s");
    app.add_option("--repeat", repeat_, "How many times to ask each query; more than 1 prints percentiles. Default 1")
        ->check(CLI::PositiveNumber);
    app.add_flag("--json", json_, "Print an object for each query instead of text");
    AddLinkFlags(app, schedule_, options_);
    app.add_option("QUERY", words_, "Query of words, \"phrases\", AND, OR, NOT. Default: each line of stdin");
  }

  absl::Status Run() {
    auto link = Link::Create(Link::Options{.schedule = schedule_});
    if (!link.ok()) return link.status();
    auto searcher = Searcher::Create(*link, options_);
    if (!searcher.ok()) return searcher.status();
    if (!words_.empty()) return Answer(**searcher, absl::StrJoin(words_, " "));
    for (std::string line; std::getline(std::cin, line);) {
      if (line.empty()) continue;
      if (absl::Status answered = Answer(**searcher, line); !answered.ok()) return answered;
    }
    return absl::OkStatus();
  }

  // Returns 3 for a valid but incomplete result.
  int ExitCode(int code) const {
    constexpr int kPartial = 3;
    return code == 0 && partial_ ? kPartial : code;
  }

 private:
  absl::Status Answer(const Searcher& searcher, const std::string& query) {
    absl::StatusOr<v1::SearchResult> result = searcher.Search(query);
    for (int i = 1; i < repeat_ && result.ok(); ++i) {
      const absl::StatusOr<v1::SearchResult> again = searcher.Search(query);
      if (!again.ok()) return again.status();
      result->add_milliseconds(again->milliseconds(0));
      result->set_hedges(result->hedges() + again->hedges());
      result->set_hedges_won(result->hedges_won() + again->hedges_won());
    }
    if (!result.ok()) return result.status();
    partial_ |= result->missing_size() > 0;
    if (json_) return PrintJson(*result);
    PrintHits(*result);
    PrintSummary(*result, searcher.documents());
    return absl::OkStatus();
  }

  static absl::Status PrintJson(const v1::SearchResult& result) {
    google::protobuf::util::JsonPrintOptions options;
    options.always_print_primitive_fields = true;
    options.preserve_proto_field_names = true;
    std::string json;
    const auto printed = google::protobuf::util::MessageToJsonString(result, &json, options);
    if (!printed.ok()) return absl::InternalError(printed.ToString());
    std::cout << json << std::endl;
    return absl::OkStatus();
  }

  static void PrintHits(const v1::SearchResult& result) {
    const bool terminal = isatty(STDOUT_FILENO) == 1;
    for (int i = 0; i < result.hits_size(); ++i) {
      const v1::Hit& hit = result.hits(i);
      std::cout << i + 1 << ". " << hit.title() << "  (" << hit.score() << ")\n   " << hit.path() << '\n';
      if (!hit.snippet_html().empty()) std::cout << "   " << PlainText(hit.snippet_html(), terminal) << '\n';
      std::cout << '\n';
    }
  }

  static void PrintSummary(const v1::SearchResult& result, uint64_t documents) {
    for (const std::string& reason : result.missing()) std::cerr << "search: missing: " << reason << std::endl;
    std::vector<double> milliseconds(result.milliseconds().begin(), result.milliseconds().end());
    std::sort(milliseconds.begin(), milliseconds.end());
    const auto quantile = [&](double part) {
      const auto rank = static_cast<size_t>(part * static_cast<double>(milliseconds.size()));
      return DurationText(absl::Milliseconds(milliseconds[std::min(rank, milliseconds.size() - 1)]));
    };
    std::cout << result.query() << ": " << result.hits_size() << " of " << result.matches() << " matches in "
              << documents << " documents; " << result.shards_answered() << " of " << result.shard_count()
              << " shards answered, with " << result.response_bytes() << " bytes; " << quantile(0.5);
    if (milliseconds.size() > 1) {
      std::cout << " (p50 of " << milliseconds.size() << "; p99 " << quantile(0.99) << ")";
    }
    if (result.hedges() > 0) std::cout << "; " << result.hedges() << " hedges, " << result.hedges_won() << " won";
    std::cout << std::endl;
  }

  Searcher::Options options_;
  ScheduleOptions schedule_;
  std::vector<std::string> words_;
  int repeat_ = 1;
  bool json_ = false;
  bool partial_ = false;
};

}  // namespace
}  // namespace sluice::examples::search

int main(int argc, char** argv) {
  CLI::App app("Searches an index whose shards are served by search-workers.", "search");
  sluice::examples::search::Search search(app);
  return search.ExitCode(sluice::examples::search::RunProgram(app, argc, argv, [&] { return search.Run(); }));
}
