#pragma once

#include <functional>
#include <string>

#include <xapian.h>

namespace sluice::examples::search {

// BM25 with the statistics of a whole index instead of those of one shard, so that the scores of all shards compare and
// splitting an index changes no score. Xapian's own BM25Weight takes the statistics of the database at hand; in a small
// or one-sided shard a common word would look rare, and its documents would win. Asking all shards for their statistics
// before each query was the alternative: exact for an index that changes, and one more fan-out.
//
// Xapian tells a Weight its term's statistics but not its term. So the inverse document frequency comes in as a factor
// (ScaleTerms), and this is the rest of the formula.
class GlobalBm25 : public Xapian::Weight {
 public:
  explicit GlobalBm25(double average_length);
  GlobalBm25* clone() const override;
  std::string name() const override { return "GlobalBm25"; }
  double get_sumpart(Xapian::termcount wdf, Xapian::termcount length, Xapian::termcount unique_terms) const override;
  double get_maxpart() const override;
  double get_sumextra(Xapian::termcount, Xapian::termcount) const override { return 0; }
  double get_maxextra() const override { return 0; }

 private:
  void init(double factor) override { factor_ = factor; }

  const double average_length_;
  double factor_ = 0;
};

// ln(1 + (N - n + 0.5) / (n + 0.5)) for a term in n of N documents. Robertson and Zaragoza, "The Probabilistic
// Relevance Framework: BM25 and Beyond", 2009, equation 3.3; the 1 keeps words that most documents have above 0, as
// Lucene does.
double InverseDocumentFrequency(double documents, double documents_with_term);

// The same query with the weight of each term multiplied by its factor. A phrase, whose parts Xapian does not let one
// scale, scores as its words and filters by itself.
Xapian::Query ScaleTerms(const Xapian::Query& query, const std::function<double(const std::string& term)>& factor);

}  // namespace sluice::examples::search
