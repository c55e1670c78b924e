#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string_view>

namespace sluice {

// Chooses the workers that are asked for the manifest of one file, one after the other. A file lies on the first k of
// the n workers, and k is not known: the file may be older than most workers. The search begins at one of all workers,
// which a hash of the name chooses, so the load is spread. It continues in the first half, the first quarter and so on,
// and finds the file after at most log2(n / k) + 2 asks if no worker fails. Then come all others in their order. There
// is one for each fetch. Not thread-safe.
class ManifestSearch {
 public:
  // If this number of workers does not have the file, it lies before the last of them. One such worker would prove it
  // if no worker ever lost its disk.
  static constexpr size_t kWithoutFile = 3;

  ManifestSearch(std::string_view file, size_t workers);

  // Returns the next worker to ask, each worker once. Workers for which `bad` is true come last. Empty: no other worker
  // can have the file.
  std::optional<size_t> Next(const std::function<bool(size_t worker)>& bad);
  // The worker does not have the file.
  void OnNotFound(size_t worker) { without_file_.insert(worker); }

 private:
  std::optional<size_t> NextInOrder();
  bool MayHaveFile(size_t worker) const;

  const size_t workers_;
  const uint32_t hash_;
  size_t range_;            // the next worker is among the first range_ workers; 0: the halves are done
  size_t next_worker_ = 0;  // after that
  std::set<size_t> chosen_;
  std::deque<size_t> bad_;  // chosen, and not returned yet
  std::set<size_t> without_file_;
};

}  // namespace sluice
