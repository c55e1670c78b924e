#include "top_hits.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace sluice::examples::search {

void TopHits::Add(v1::QueryResponse answer) {
  std::move(answer.mutable_hits()->begin(), answer.mutable_hits()->end(), std::back_inserter(hits_));
  std::sort(hits_.begin(), hits_.end(), [](const v1::Hit& a, const v1::Hit& b) {
    return std::forward_as_tuple(b.score(), a.path()) < std::forward_as_tuple(a.score(), b.path());
  });
  if (hits_.size() > k_) hits_.resize(k_);
}

}  // namespace sluice::examples::search
