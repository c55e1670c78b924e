#include "shard.h"

#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bm25.h"
#include "index_layout.h"
#include "query_bounds.h"

namespace sluice::examples::search {
namespace {

absl::Status Validate(const v1::QueryRequest& request) {
  if (request.query().size() > kMaxQueryBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("query: ", request.query().size(), " bytes are more than ", kMaxQueryBytes));
  if (request.top_k() < 1 || request.top_k() > kMaxHits)
    return absl::InvalidArgumentError(absl::StrCat("top_k: ", request.top_k(), " is not from 1 to ", kMaxHits));
  if (request.snippet_bytes() > kMaxSnippetBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("snippet_bytes: ", request.snippet_bytes(), " is more than ", kMaxSnippetBytes));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Shard>> Shard::Open(const std::string& index, uint32_t shard) {
  const std::string folder = ShardFolder(index, shard);
  if (!std::filesystem::exists(folder))
    return absl::NotFoundError(absl::StrCat("there is no ", folder, "; search-index makes an index"));
  std::unique_ptr<Shard> opened(new Shard(folder));
  if (absl::Status read = opened->ReadStatistics(); !read.ok()) return read;
  return opened;
}

absl::Status Shard::ReadStatistics() try {
  const Xapian::Database database = Borrow();
  if (!absl::SimpleAtoi(database.get_metadata(kShardCountKey), &shard_count_) ||
      !absl::SimpleAtoi(database.get_metadata(kDocumentsKey), &documents_) ||
      !absl::SimpleAtod(database.get_metadata(kAverageLengthKey), &average_length_))
    return absl::FailedPreconditionError(absl::StrCat(folder_, " lacks the statistics of an index of search-index"));
  GiveBack(database);
  return absl::OkStatus();
} catch (const Xapian::Error& error) {
  return absl::FailedPreconditionError(absl::StrCat(folder_, ": ", error.get_description()));
}

absl::StatusOr<v1::QueryResponse> Shard::Query(const v1::QueryRequest& request) try {
  if (absl::Status valid = Validate(request); !valid.ok()) return valid;
  Xapian::Database database = Borrow();
  v1::QueryResponse response = Run(database, request);
  GiveBack(std::move(database));  // not after an exception: this handle may be broken
  return response;
} catch (const Xapian::QueryParserError& error) {
  return absl::InvalidArgumentError(absl::StrCat("query: ", error.get_msg()));
} catch (const Xapian::Error& error) {
  return absl::InternalError(absl::StrCat(folder_, ": ", error.get_description()));
}

v1::QueryResponse Shard::Run(const Xapian::Database& database, const v1::QueryRequest& request) const {
  Xapian::Enquire enquire(database);
  enquire.set_query(Parse(database, request.query()));
  enquire.set_weighting_scheme(GlobalBm25(average_length_));
  // Check every match, so that the number of matches is exact.
  const Xapian::MSet matches = enquire.get_mset(0, request.top_k(), /*checkatleast=*/database.get_doccount());
  v1::QueryResponse response;
  response.set_matches(matches.get_matches_estimated());
  for (auto match = matches.begin(); match != matches.end(); ++match) {
    v1::Document document;
    document.ParseFromString(match.get_document().get_data());
    v1::Hit& hit = *response.add_hits();
    hit.set_score(static_cast<float>(match.get_weight()));
    hit.set_title(document.title());
    hit.set_path(document.path());
    // Use the first good place instead of the best: Xapian's default reads a long document to its end.
    constexpr unsigned kFirstGoodPlace = 0;
    if (request.snippet_bytes() > 0)
      hit.set_snippet_html(matches.snippet(document.text(), request.snippet_bytes(), stemmer_, kFirstGoodPlace));
  }
  return response;
}

Xapian::Query Shard::Parse(const Xapian::Database& database, const std::string& text) const {
  Xapian::QueryParser parser;
  parser.set_stemmer(stemmer_);
  parser.set_stemming_strategy(Xapian::QueryParser::STEM_SOME);
  parser.set_default_op(Xapian::Query::OP_OR);
  return ScaleTerms(parser.parse_query(text), [&](const std::string& term) {
    double documents_with_term = 0;
    if (!absl::SimpleAtod(database.get_metadata(TermFrequencyKey(term)), &documents_with_term)) return 1.0;  // unknown
    return InverseDocumentFrequency(static_cast<double>(documents_), documents_with_term);
  });
}

Xapian::Database Shard::Borrow() {
  {
    absl::MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      Xapian::Database database = std::move(idle_.back());
      idle_.pop_back();
      return database;
    }
  }
  return Xapian::Database(folder_);
}

void Shard::GiveBack(Xapian::Database database) {
  absl::MutexLock lock(&mutex_);
  idle_.push_back(std::move(database));
}

}  // namespace sluice::examples::search
