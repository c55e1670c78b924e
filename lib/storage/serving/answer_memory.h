#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace sluice {

// Bounds the memory of the responses that a service holds, also for clients that do not read them: gRPC's own quota
// does not count these. There is one for each service. Thread-safe.
class AnswerMemory {
 public:
  // The memory of one response, or of one piece of it if it comes in pieces, from the request until the last byte has
  // left. Not thread-safe.
  class Share {
   public:
    explicit Share(AnswerMemory& memory) : memory_(memory) {}
    ~Share() { memory_.used_bytes_.fetch_sub(bytes_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Takes memory; call it once. Returns ResourceExhausted if there is not enough left.
    absl::Status Take(uint64_t bytes);

   private:
    AnswerMemory& memory_;
    uint64_t bytes_ = 0;
  };

  explicit AnswerMemory(uint64_t max_bytes) : max_bytes_(max_bytes) {}

 private:
  const uint64_t max_bytes_;
  std::atomic<uint64_t> used_bytes_ = 0;
};

}  // namespace sluice
