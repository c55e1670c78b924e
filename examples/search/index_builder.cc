#include "index_builder.h"

#include <cmath>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include <xapian.h>

#include "absl/strings/str_cat.h"
#include "document.h"
#include "index_layout.h"

namespace sluice::examples::search {
namespace {

namespace fs = std::filesystem;

constexpr double kMaxSkew = 4;
constexpr int kTitleWeight = 5;  // weight of a word in the title

absl::Status Validate(const IndexOptions& options) {
  if (options.shards < 1 || options.shards > kMaxShards)
    return absl::InvalidArgumentError(absl::StrCat("shards: ", options.shards, " is not from 1 to ", kMaxShards));
  if (!(options.skew >= 0 && options.skew <= kMaxSkew))
    return absl::InvalidArgumentError(absl::StrCat("skew: ", options.skew, " is not from 0 to ", kMaxSkew));
  if (!fs::exists(options.folder)) return absl::OkStatus();
  if (!fs::exists(ShardFolder(options.folder, 0)))  // do not delete a folder that is not an index
    return absl::FailedPreconditionError(absl::StrCat("index: ", options.folder, " is there already and no index"));
  if (!options.replace)
    return absl::FailedPreconditionError(
        absl::StrCat("index: ", options.folder, " is there already; --force replaces it"));
  return absl::OkStatus();
}

// Writes the shards into a folder next to their final folder. One for each index. Not thread-safe.
class ShardWriter {
 public:
  explicit ShardWriter(const IndexOptions& options) : partial_(options.folder + ".partial") {
    fs::remove_all(partial_);
    fs::create_directories(partial_);
    std::vector<double> weights;
    for (uint32_t shard = 0; shard < options.shards; ++shard) {
      shards_.emplace_back(ShardFolder(partial_, shard), Xapian::DB_CREATE);
      weights.push_back(std::pow(shard + 1, -options.skew));
    }
    choice_ = std::discrete_distribution<size_t>(weights.begin(), weights.end());
    generator_.set_stemmer(Xapian::Stem("english"));
  }

  void Add(const v1::Document& document) {
    Xapian::Document entry;
    generator_.set_document(entry);
    generator_.set_termpos(0);
    generator_.index_text(document.title(), kTitleWeight);
    generator_.increase_termpos();  // separates the title from the text for phrases
    generator_.index_text(document.text());
    entry.set_data(document.SerializeAsString());
    shards_[choice_(random_)].add_document(entry);
  }

  void Finish(const IndexOptions& options) {
    Xapian::Database index;
    for (Xapian::WritableDatabase& shard : shards_) {
      shard.commit();
      index.add_database(Xapian::Database(ShardFolder(partial_, static_cast<uint32_t>(&shard - shards_.data()))));
    }
    for (Xapian::WritableDatabase& shard : shards_) WriteStatistics(index, shard);
    if (options.replace) fs::remove_all(options.folder);
    fs::rename(partial_, options.folder);
  }

  std::vector<uint64_t> Documents() const {
    std::vector<uint64_t> documents;
    for (const Xapian::WritableDatabase& shard : shards_) documents.push_back(shard.get_doccount());
    return documents;
  }

 private:
  void WriteStatistics(const Xapian::Database& index, Xapian::WritableDatabase& shard) const {
    shard.set_metadata(kShardCountKey, absl::StrCat(shards_.size()));
    shard.set_metadata(kDocumentsKey, absl::StrCat(index.get_doccount()));
    shard.set_metadata(kAverageLengthKey, std::to_string(index.get_average_length()));
    for (auto term = shard.allterms_begin(); term != shard.allterms_end(); ++term) {
      shard.set_metadata(TermFrequencyKey(*term), absl::StrCat(index.get_termfreq(*term)));
    }
    shard.commit();
  }

  const std::string partial_;
  std::vector<Xapian::WritableDatabase> shards_;
  Xapian::TermGenerator generator_;
  std::mt19937_64 random_{1};  // NOLINT(bugprone-random-generator-seed,cert-msc51-cpp): the same shards every time
  std::discrete_distribution<size_t> choice_;
};

absl::StatusOr<IndexSummary> Build(const IndexOptions& options, const std::vector<CorpusFile>& corpus,
                                   const std::function<void(uint64_t bytes)>& progress) {
  IndexSummary summary;
  ShardWriter writer(options);
  uint64_t bytes_read = 0;
  for (const CorpusFile& file : corpus) {
    const absl::StatusOr<v1::Document> document = ReadDocument(file.path);
    if (document.ok()) {
      writer.Add(*document);
      ++summary.documents;
      summary.text_bytes += document->text().size();
    } else {
      summary.skipped.emplace_back(document.status().message());
    }
    progress(bytes_read += file.bytes);
  }
  if (summary.documents == 0)
    return absl::FailedPreconditionError(absl::StrCat("corpus: no file is a document; ", summary.skipped.front()));
  writer.Finish(options);
  summary.shard_documents = writer.Documents();
  return summary;
}

}  // namespace

absl::StatusOr<IndexSummary> BuildIndex(const IndexOptions& options, const std::vector<CorpusFile>& corpus,
                                        const std::function<void(uint64_t bytes)>& progress) {
  if (absl::Status valid = Validate(options); !valid.ok()) return valid;
  try {
    return Build(options, corpus, progress);
  } catch (const Xapian::Error& error) {
    return absl::FailedPreconditionError(absl::StrCat("index: ", options.folder, ": ", error.get_description()));
  } catch (const fs::filesystem_error& error) {
    return absl::FailedPreconditionError(absl::StrCat("index: ", error.what()));
  }
}

}  // namespace sluice::examples::search
