#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

inline constexpr size_t kMaxListedWorkers = 65536;

// Numbered workers without a known last number: "sluice-worker-{0..}.sluice-workers:7000".
struct OpenRange {
  std::string before;
  uint32_t first = 0;
  std::string after;  // includes the port

  std::string Address(uint32_t offset) const;  // the address of the worker with the number first + offset

  friend bool operator==(const OpenRange&, const OpenRange&) = default;
};

// The workers that the entries of a list represent, as far as they are known without a look-up. A plain value.
struct WorkerList {
  std::vector<std::string> fixed;
  std::optional<OpenRange> open;
  std::vector<std::string> names;  // names such as "stores:7000": each address of such a name is a worker

  bool NeedsLookUps() const { return open.has_value() || !names.empty(); }

  // Returns the fixed workers, then the first `found` workers of the open range, then `members`, the addresses of the
  // names. A worker therefore keeps its number when workers after it come and go. Returns at most kMaxListedWorkers.
  std::vector<std::string> Addresses(uint32_t found, const std::vector<std::string>& members = {}) const;

  friend bool operator==(const WorkerList&, const WorkerList&) = default;
};

// Parses a list. Each entry is one of these:
// * an address, see ParseWorkerTarget;
// * an address with one range: "worker-{0..31}.workers:7000", both ends included;
// * a name with an open range: "worker-{0..}.workers:7000" has one worker for each number that has an address. It
//   must be the last entry. Otherwise its growth would move the workers after it, and the places of their stripes;
// * "dns+NAME:PORT": each current address of the name.
// Returns InvalidArgument with the entry and the problem. A list has 1 to kMaxListedWorkers workers.
absl::StatusOr<WorkerList> ParseWorkerList(const std::vector<std::string>& entries);

// Like ParseWorkerList, for callers that need every worker at once. Returns the workers in the order of the entries.
// Also returns InvalidArgument for an entry that needs a look-up.
absl::StatusOr<std::vector<std::string>> ParseFixedWorkers(const std::vector<std::string>& entries);

}  // namespace sluice
