#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace sluice {

// Keeps the memory of messages that are no longer needed, for later messages. There is one for each link. Not
// thread-safe.
//
// Without it, a thread's heap returns the memory at its end to the system once a fan-out has freed its responses. Each
// page of the next responses is then a page fault. With responses of 1 MB, page faults took two thirds of the CPU time.
class MessageBuffers {
 public:
  // Upper bound of the memory that is kept. A message that would exceed it replaces all kept memory.
  static constexpr size_t kMostBytes = size_t{32} << 20;

  // Returns an empty string with room for at least `bytes`, and less than four times `bytes`, if such memory is kept.
  // Otherwise returns a string without memory.
  std::string Take(size_t bytes);
  // Keeps the memory of `message`. Short messages are not kept, since the heap handles them well.
  void Give(std::string message);

  size_t kept_bytes() const { return kept_bytes_; }

 private:
  static constexpr size_t kMinBytes = 4096;
  static constexpr size_t kClasses = 64;

  std::array<std::vector<std::string>, kClasses> kept_;  // by bit width of their capacity
  size_t kept_bytes_ = 0;
};

}  // namespace sluice
