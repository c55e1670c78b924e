// search-index: builds the shards of a full-text index from folders of HTML and plain text.

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "examples/search/corpus.h"
#include "examples/search/index_builder.h"
#include "lib/cli/program.h"
#include "lib/cli/progress_bar.h"
#include "lib/cli/units.h"

namespace sluice::examples::search {
namespace {

class Indexer {
 public:
  void AddFlags(CLI::App& app) {
    app.add_option("--out", options_.folder, "Folder of the index; it appears when it is complete")->required();
    app.add_option("--shards", options_.shards, "Number of shards of the index. Default 1");
    app.add_option("--skew", options_.skew,
                   "Size of shard s relative to the largest is 1/(s+1)^SKEW; 0 makes all equal. Default 0");
    app.add_flag("--force", options_.replace, "Replace an existing index");
    app.add_option("--progress", progress_text_,
                   "When to show progress: auto (on a terminal), always or never. Default auto");
    app.add_option("CORPUS", corpus_, "Folders of .html, .htm and .txt files")->required();
  }

  absl::Status Configure() { return ParseField("progress", progress_text_, ParseShowProgress, progress_); }

  absl::Status Run() const {
    const auto started = std::chrono::steady_clock::now();
    const absl::StatusOr<std::vector<CorpusFile>> corpus = ListCorpus(corpus_);
    if (!corpus.ok()) return corpus.status();
    const absl::StatusOr<IndexSummary> summary = Build(*corpus);
    if (!summary.ok()) return summary.status();
    Report(*summary, absl::FromChrono(std::chrono::steady_clock::now() - started));
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<IndexSummary> Build(const std::vector<CorpusFile>& corpus) const {
    uint64_t total_bytes = 0;
    for (const CorpusFile& file : corpus) total_bytes += file.bytes;
    ProgressBar progress(progress_);
    return BuildIndex(options_, corpus, [&](uint64_t bytes) { progress.Update(bytes, total_bytes); });
  }

  static void Report(const IndexSummary& summary, absl::Duration duration) {
    for (const std::string& reason : summary.skipped) std::cerr << "search-index: skipped " << reason << '\n';
    const auto [smallest, largest] =
        std::minmax_element(summary.shard_documents.begin(), summary.shard_documents.end());
    std::cout << "indexed " << summary.documents << " documents, "
              << FormatByteSize(static_cast<int64_t>(summary.text_bytes)) << " of text, in "
              << sluice::FormatDuration(duration) << "; " << summary.shard_documents.size() << " shards of "
              << *smallest << " to " << *largest << " documents; " << summary.skipped.size() << " files skipped"
              << std::endl;
  }

  IndexOptions options_;
  std::vector<std::string> corpus_;
  std::string progress_text_;
  ShowProgress progress_ = ShowProgress::kAuto;
};

}  // namespace
}  // namespace sluice::examples::search

int main(int argc, char** argv) {
  sluice::examples::search::Indexer indexer;
  return sluice::RunProgram(argc, argv,
                            {.name = "search-index",
                             .description = "Makes the shards of a full-text index from folders of documents.",
                             .add_flags = [&](CLI::App& app) { indexer.AddFlags(app); },
                             .configure = [&] { return indexer.Configure(); },
                             .run = [&] { return indexer.Run(); }});
}
