#pragma once

namespace sluice {

// What gRPC's completion queue hands back.
class Completion {
 public:
  virtual ~Completion() = default;
  virtual void OnCompletion(bool ok) = 0;

  void* tag() { return this; }
};

}  // namespace sluice
