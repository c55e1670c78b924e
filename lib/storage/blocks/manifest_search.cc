#include "lib/storage/blocks/manifest_search.h"

#include <iterator>

#include "lib/storage/stripe/crc32c.h"

namespace sluice {

ManifestSearch::ManifestSearch(std::string_view file, size_t workers)
    : workers_(workers), hash_(Crc32c(file)), range_(workers) {}

std::optional<size_t> ManifestSearch::Next(const std::function<bool(size_t)>& bad) {
  for (auto worker = NextInOrder(); worker.has_value(); worker = NextInOrder()) {
    if (!MayHaveFile(*worker) || !chosen_.insert(*worker).second) continue;
    if (!bad(*worker)) return worker;
    bad_.push_back(*worker);
  }
  while (!bad_.empty()) {
    const size_t worker = bad_.front();
    bad_.pop_front();
    if (MayHaveFile(worker)) return worker;
  }
  return std::nullopt;
}

std::optional<size_t> ManifestSearch::NextInOrder() {
  if (range_ > 0) {
    const size_t worker = hash_ % range_;
    range_ /= 2;
    return worker;
  }
  if (next_worker_ == workers_) return std::nullopt;
  return next_worker_++;
}

bool ManifestSearch::MayHaveFile(size_t worker) const {
  return without_file_.size() < kWithoutFile || worker < *std::next(without_file_.begin(), kWithoutFile - 1);
}

}  // namespace sluice
