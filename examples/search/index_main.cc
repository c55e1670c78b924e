// search-index: builds the shards of a full-text index from folders of HTML and plain text.

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "corpus.h"
#include "index_builder.h"
#include "program.h"

namespace sluice::examples::search {
namespace {

class Indexer {
 public:
  explicit Indexer(CLI::App& app) {
    app.add_option("--out", options_.folder, "Folder of the index; it appears when it is complete")->required();
    app.add_option("--shards", options_.shards, "Number of shards of the index. Default 1");
    app.add_option("--skew", options_.skew,
                   "Size of shard s relative to the largest is 1/(s+1)^SKEW; 0 makes all equal. Default 0");
    app.add_flag("--force", options_.replace, "Replace an existing index");
    app.add_option("CORPUS", corpus_, "Folders of .html, .htm and .txt files")->required();
  }

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
    const bool terminal = isatty(STDERR_FILENO) == 1;
    return BuildIndex(options_, corpus, [&](uint64_t bytes) {
      if (terminal) std::cerr << '\r' << 100 * bytes / std::max<uint64_t>(total_bytes, 1) << " %\r" << std::flush;
    });
  }

  static void Report(const IndexSummary& summary, absl::Duration duration) {
    for (const std::string& reason : summary.skipped) std::cerr << "search-index: skipped " << reason << '\n';
    const auto [smallest, largest] =
        std::minmax_element(summary.shard_documents.begin(), summary.shard_documents.end());
    std::cout << "indexed " << summary.documents << " documents, " << summary.text_bytes << " bytes of text, in "
              << DurationText(duration) << "; " << summary.shard_documents.size() << " shards of " << *smallest
              << " to " << *largest << " documents; " << summary.skipped.size() << " files skipped" << std::endl;
  }

  IndexOptions options_;
  std::vector<std::string> corpus_;
};

}  // namespace
}  // namespace sluice::examples::search

int main(int argc, char** argv) {
  CLI::App app("Makes the shards of a full-text index from folders of documents.", "search-index");
  sluice::examples::search::Indexer indexer(app);
  return sluice::examples::search::RunProgram(app, argc, argv, [&] { return indexer.Run(); });
}
