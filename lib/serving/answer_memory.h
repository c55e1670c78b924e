#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace sluice {

// The memory that a service may hold answers in, those of clients that do not read them included: gRPC's own quota does
// not count them. One a service; thread-safe.
class AnswerMemory {
 public:
  // What one answer takes of it, from its request until its last byte has left: for an answer in pieces, one piece. Not
  // thread-safe.
  class Share {
   public:
    explicit Share(AnswerMemory& memory) : memory_(memory) {}
    ~Share() { memory_.used_bytes_.fetch_sub(bytes_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Once. ResourceExhausted: there is not so much left.
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
