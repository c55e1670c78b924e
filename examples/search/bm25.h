#pragma once

#include <functional>
#include <string>

#include <xapian.h>

namespace sluice::examples::search {

// BM25 with the statistics of a whole index instead of one shard's, so that the scores of all shards compare, and
// splitting an index changes no score. Xapian's own BM25Weight uses the statistics of the open database. In a small or
// biased shard a common word would look rare, and its documents would win. Rejected: requesting the statistics of all
// shards before each query, which is exact for an index that changes, but costs one more fan-out.
//
// Xapian gives a Weight its term's statistics but not its term. Therefore ScaleTerms applies the inverse document
// frequency as a factor, and this class computes the rest of the formula.
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

// Returns ln(1 + (N - n + 0.5) / (n + 0.5)) for a term in n of N documents. See Robertson and Zaragoza, "The
// Probabilistic Relevance Framework: BM25 and Beyond", 2009, equation 3.3. As in Lucene, the 1 keeps words in most
// documents above 0.
double InverseDocumentFrequency(double documents, double documents_with_term);

// Returns the query with the weight of each term multiplied by its factor. Xapian cannot scale the parts of a phrase,
// so a phrase scores as its words, and filters.
Xapian::Query ScaleTerms(const Xapian::Query& query, const std::function<double(const std::string& term)>& factor);

}  // namespace sluice::examples::search
