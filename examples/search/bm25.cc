#include "bm25.h"

#include <cmath>
#include <vector>

namespace sluice::examples::search {
namespace {

// The usual values, as in Lucene.
constexpr double kSaturation = 1.2;      // k1
constexpr double kLengthPenalty = 0.75;  // b

Xapian::Query ScaleTerm(const std::string& term, const std::function<double(const std::string&)>& factor) {
  return {Xapian::Query::OP_SCALE_WEIGHT, Xapian::Query(term), factor(term)};
}

Xapian::Query ScalePhrase(const Xapian::Query& phrase, const std::function<double(const std::string&)>& factor) {
  std::vector<Xapian::Query> words;
  for (auto term = phrase.get_unique_terms_begin(); term != phrase.get_terms_end(); ++term) {
    words.push_back(ScaleTerm(*term, factor));
  }
  return {Xapian::Query::OP_FILTER, Xapian::Query(Xapian::Query::OP_AND, words.begin(), words.end()), phrase};
}

}  // namespace

GlobalBm25::GlobalBm25(double average_length) : average_length_(average_length) {
  need_stat(WDF);
  need_stat(WDF_MAX);
  need_stat(DOC_LENGTH);
  need_stat(DOC_LENGTH_MIN);
}

GlobalBm25* GlobalBm25::clone() const {
  return new GlobalBm25(average_length_);  // NOLINT(cppcoreguidelines-owning-memory): Xapian owns and deletes it
}

double GlobalBm25::get_sumpart(Xapian::termcount wdf, Xapian::termcount length, Xapian::termcount) const {
  const double relative_length = length / average_length_;
  const double penalty = kSaturation * (1 - kLengthPenalty + kLengthPenalty * relative_length);
  return factor_ * (kSaturation + 1) * wdf / (wdf + penalty);
}

double GlobalBm25::get_maxpart() const {
  return get_sumpart(get_wdf_upper_bound(), get_doclength_lower_bound(), 0);
}

double InverseDocumentFrequency(double documents, double documents_with_term) {
  return std::log1p((documents - documents_with_term + 0.5) / (documents_with_term + 0.5));
}

// NOLINTNEXTLINE(misc-no-recursion): as deep as the parser nests, and a query is short
Xapian::Query ScaleTerms(const Xapian::Query& query, const std::function<double(const std::string& term)>& factor) {
  switch (query.get_type()) {
    case Xapian::Query::LEAF_TERM:
      return ScaleTerm(*query.get_terms_begin(), factor);
    case Xapian::Query::OP_PHRASE:
    case Xapian::Query::OP_NEAR:
      return ScalePhrase(query, factor);
    case Xapian::Query::OP_AND:
    case Xapian::Query::OP_OR:
    case Xapian::Query::OP_XOR:
    case Xapian::Query::OP_AND_NOT:
    case Xapian::Query::OP_AND_MAYBE:
    case Xapian::Query::OP_FILTER: {
      std::vector<Xapian::Query> parts;
      for (size_t i = 0; i < query.get_num_subqueries(); ++i)
        parts.push_back(ScaleTerms(query.get_subquery(i), factor));
      return {query.get_type(), parts.begin(), parts.end()};
    }
    default:
      return query;  // a query that matches everything, or nothing
  }
}

}  // namespace sluice::examples::search
