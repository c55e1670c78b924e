#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace sluice {

// The memory of messages that nobody needs any more, for those that come next. There is one for each link. Not
// thread-safe.
//
// A thread's heap gives memory at its end back to the system as soon as a fan-out has let go of its responses, and each
// page of the next responses is then a page fault: with responses of 1 MB that was two thirds of the processor time.
class MessageBuffers {
 public:
  // Upper bound of the memory that is kept. What would exceed it takes the place of all that is kept.
  static constexpr size_t kMostBytes = size_t{32} << 20;

  // Returns an empty string with room for `bytes`, and for less than four times as many, if one is kept; else one
  // without memory.
  std::string Take(size_t bytes);
  // Keeps the memory of `message`. Does nothing for one that is short, since the heap is good at those.
  void Give(std::string message);

  size_t kept_bytes() const { return kept_bytes_; }

 private:
  static constexpr size_t kMinBytes = 4096;
  static constexpr size_t kClasses = 64;

  std::array<std::vector<std::string>, kClasses> kept_;  // by the number of bits of their capacity
  size_t kept_bytes_ = 0;
};

}  // namespace sluice
