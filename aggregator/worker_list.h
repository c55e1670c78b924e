#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice {

// Workers that are numbered without a known end: "sluice-worker-{0..}.sluice-workers:7000".
struct OpenRange {
  std::string before;
  uint32_t first = 0;
  std::string after;  // with the port

  std::string Address(uint32_t offset) const;  // of the worker so far behind the first

  friend bool operator==(const OpenRange&, const OpenRange&) = default;
};

// The `workers` of a config: those that it says, and behind them as many of an open range as there are. A plain value.
struct WorkerList {
  std::vector<std::string> fixed;
  std::optional<OpenRange> open;

  // With so many workers of the open range.
  std::vector<std::string> Addresses(uint32_t found) const;

  friend bool operator==(const WorkerList&, const WorkerList&) = default;
};

// Each entry is an address, or a pattern with one range: "worker-{0..31}.workers:7000", both ends included. The last
// one may be open: "{0..}". An open range elsewhere would move the workers behind it when it grows, and with them the
// places of their stripes. InvalidArgument quotes the entry and says what is wrong with it. Addresses are not looked
// at.
absl::StatusOr<WorkerList> ParseWorkerList(const std::vector<std::string>& entries);

}  // namespace sluice
