#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace sluice {

// Bounds the memory of the responses that a service holds, including responses that clients do not read: gRPC's quota
// does not count these. There is one for each service. Thread-safe.
class AnswerMemory {
 public:
  // The memory of one response (or one piece, if it is sent in pieces) from the request until the last byte has left.
  // Not thread-safe.
  class Share {
   public:
    explicit Share(AnswerMemory& memory) : memory_(memory) {}
    ~Share() { memory_.used_bytes_.fetch_sub(bytes_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Gives back the memory that this share took before, and takes `bytes`. Returns ResourceExhausted if too little
    // memory is left.
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
