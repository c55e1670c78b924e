// search: calls all shards of an index over one bottleneck link, and prints the best documents.

#include <cstdint>
#include <iostream>
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
#include "examples/search/query_bounds.h"
#include "examples/search/schedule_flags.h"
#include "examples/search/searcher.h"
#include "lib/cli/program.h"
#include "lib/cli/tls_flags.h"
#include "lib/cli/units.h"
#include "tools/percentile.h"

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
  void AddFlags(CLI::App& app) {
    app.add_option("--workers", options_.workers,
                   "Address of each search-worker or search-aggregator, host:port, separated by commas")
        ->required()
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_option("--top_k", options_.top_k, "Number of hits to print, 1 to 1000. Default 10");
    app.add_option("--snippet", snippet_text_, "Bytes of text to print with each hit, 0 to 4096. Default 200");
    app.add_option("--fail_limit", options_.fan_out.fail_limit.emplace(0),
                   "Maximum number of workers that may fail; if some do, the exit code is 3. Default 0")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--timeout", timeout_text_, "Time for each query. Default 10s");
    app.add_option("--repeat", repeat_, "How many times to ask each query; more than 1 prints percentiles. Default 1")
        ->check(CLI::PositiveNumber);
    app.add_flag("--json", json_, "Print an object for each query instead of text");
    schedule_flags_.Add(app, options_.fan_out);
    AddTlsFlags(app, tls_config_, TlsRole::kClient);
    app.add_option("QUERY", words_, "Query of words, \"phrases\", AND, OR, NOT. Default: each line of stdin");
  }

  absl::Status Configure() {
    absl::Status status = schedule_flags_.Parse(schedule_, options_.fan_out);
    int64_t snippet_bytes = options_.snippet_bytes;
    status.Update(ParseField("snippet", snippet_text_, ParseByteSize, snippet_bytes));
    status.Update(ParseField("timeout", timeout_text_, ParseDuration, options_.fan_out.timeout));
    if (options_.top_k < 1 || options_.top_k > kMaxHits)
      status.Update(
          absl::InvalidArgumentError(absl::StrCat("top_k: ", options_.top_k, " is not from 1 to ", kMaxHits)));
    if (snippet_bytes > kMaxSnippetBytes)
      status.Update(
          absl::InvalidArgumentError(absl::StrCat("snippet: ", snippet_bytes, " is more than ", kMaxSnippetBytes)));
    options_.snippet_bytes = static_cast<uint32_t>(snippet_bytes);
    const absl::StatusOr<TlsSettings> tls = ParseTlsConfig(tls_config_, TlsRole::kClient);
    status.Update(tls.ok() ? CheckTlsFiles(*tls) : tls.status());
    if (tls.ok()) options_.tls = tls->client;
    return status;
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
    const std::vector<double> milliseconds(result.milliseconds().begin(), result.milliseconds().end());
    std::cout << result.query() << ": " << result.hits_size() << " of " << result.matches() << " matches in "
              << documents << " documents; " << result.shards_answered() << " of " << result.shard_count()
              << " shards answered, with " << FormatByteSize(static_cast<int64_t>(result.response_bytes())) << "; "
              << Format(Percentile(milliseconds, 0.5));
    if (milliseconds.size() > 1) {
      std::cout << " (p50 of " << milliseconds.size() << "; p99 " << Format(Percentile(milliseconds, 0.99)) << ")";
    }
    if (result.hedges() > 0) std::cout << "; " << result.hedges() << " hedges, " << result.hedges_won() << " won";
    std::cout << std::endl;
  }

  static std::string Format(double milliseconds) { return sluice::FormatDuration(absl::Milliseconds(milliseconds)); }

  Searcher::Options options_;
  sluice::v1::TlsConfig tls_config_;
  ScheduleFlags schedule_flags_;
  ScheduleOptions schedule_;
  std::vector<std::string> words_;
  std::string snippet_text_;
  std::string timeout_text_;
  int repeat_ = 1;
  bool json_ = false;
  bool partial_ = false;
};

}  // namespace
}  // namespace sluice::examples::search

int main(int argc, char** argv) {
  sluice::examples::search::Search search;
  const int code = sluice::RunProgram(argc, argv,
                                      {.name = "search",
                                       .description = "Searches an index whose shards are served by search-workers.",
                                       .add_flags = [&](CLI::App& app) { search.AddFlags(app); },
                                       .configure = [&] { return search.Configure(); },
                                       .run = [&] { return search.Run(); }});
  return search.ExitCode(code);
}
